"""The embedded service: the interface for real, on one machine, with no account. No production service.

Start it with `python -m airflow_tds.local`, or in Python:

    with Service(tables=["flights"]) as service:
        client = TableClient(service.url, token=service.token)

From the project it may import `client.models`, `client.wire` and `client.errors` only: it must be able to
disagree with the client. Nothing here knows Airflow. Which room holds what:

    sql, columns        how text becomes SQL safely; what a column can hold
    payloads/           one payload format per file: a file becomes rows of exactly the table's columns
    directory           the data directory: its files and its lock
    database, records   the database file; what it remembers of tables and jobs
    catalog             how that is read and written
    store               tables, durable jobs and files, and the copies in memory that answer
    register, ends      the jobs as memory knows them; who waits for one
    filters, pages      predicates as SQL; one page of a table as JSON
    intake              how a write becomes a job
    writes, query       a job's SQL: one write to one table; one cross query to one result file
    jobs, worker        what a job does, to its commit; the threads that run jobs, each at most once
    housekeeping        what is removed, and when
    signing, storage    presigned URLs and the object store behind them
    s3                  a bucket of an S3-compatible store in its place
    routing, inputs     which operation a request means, and what it asks, in whatever form the wire map says
    answers             answers and refusals, where the wire map reads them
    rehearsal           whether a wire map can be served at all
    callers, rights     who calls, by which scheme; what each may do
    faults, recorder    what goes wrong on purpose; the log of requests
    operations, admin   the endpoints of the interface, and the service's own
    connection          an Airflow connection to a service, ready to paste
    openapi, asked      the routes as an OpenAPI document, and what may be asked at each
    page/               the page for people
    app, service        HTTP, put together, and the whole as an object that starts and stops
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_tds.local.rights import Rights
    from airflow_tds.local.s3 import Bucket
    from airflow_tds.local.service import Service

__all__ = ["Bucket", "Rights", "Service"]


def __getattr__(name: str) -> Any:
    """Import on first use: `Service` brings DuckDB and the HTTP server along."""
    if name == "Service":
        from airflow_tds.local.service import Service

        return Service
    if name == "Rights":
        from airflow_tds.local.rights import Rights

        return Rights
    if name == "Bucket":
        from airflow_tds.local.s3 import Bucket

        return Bucket
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
