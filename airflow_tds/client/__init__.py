"""The Table Data Service's interface as a Python client; it knows no Airflow.

Usable alone, from a script or a notebook: `from airflow_tds.client.client import TableClient`.
This file exports nothing, so that importing one room does not load the others.
"""
