"""Airflow provider for the Table Data Service.

This file holds the version and nothing else: Airflow imports it whenever it lists providers.
"""

__version__ = "0.1.0.dev0"
