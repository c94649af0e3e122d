"""What can be read of a table: statistics, a page, "unchanged", an unknown job, a result by its presigned address.

Nothing is changed, so any table will do; a result is fetched only of a table of few rows.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import TypeVar

from airflow_tds.client import errors
from airflow_tds.client.models import DatasetInfoResponse
from airflow_tds.doctor.patient import Patient
from airflow_tds.doctor.reports import Report

__all__ = ["read_all"]

T = TypeVar("T")

#: Rows of a table beyond which its rows are not fetched just to see that they can be.
MOST_ROWS = 100_000
#: No job has this id.
NO_JOB = "00000000-0000-0000-0000-000000000000"
#: The first and the last bytes of every parquet file.
_PARQUET = b"PAR1"


def read_all(patient: Patient, report: Report, table_id: str) -> None:
    """Read everything that can be read of a table.

    Args:
        patient: The service.
        report: Is told what was found.
        table_id: A table that is there.
    """
    info = _noted(report, "info", lambda: _statistics(patient, report, table_id))
    _noted(report, "get_job", lambda: _unknown_job(patient, report))
    rows = _noted(report, "query", lambda: _page(patient, report, table_id))
    if rows is not None and (info is None or (info.row_count or 0) <= MOST_ROWS):
        _noted(report, "presigned GET", lambda: _result(patient, report, table_id, rows))


def _noted(report: Report, check: str, work: Callable[[], T]) -> T | None:
    """Do one check; what goes wrong is what it found."""
    try:
        return work()
    except errors.TableServiceError as error:
        report.add(check, "failed", str(error))
        return None


def _statistics(patient: Patient, report: Report, table_id: str) -> DatasetInfoResponse:
    info = patient.do(patient.operations().info(table_id))
    missing = [name for name in ("row_count", "snapshot_id") if getattr(info, name) is None]
    shown = ", ".join(f"{name} {getattr(info, name)}" for name in ("row_count", "total_size_bytes", "snapshot_id"))
    report.add("info", "ok", shown)
    if "row_count" in missing:
        report.add(
            "info", "failed", "no row_count: truncations cannot be seen; the wire setting 'row_count' says where"
        )
    elif missing and info.row_count:
        report.add("info", "warning", "no snapshot_id: a failed write cannot be told from one that changed nothing")
    return info


def _unknown_job(patient: Patient, report: Report) -> None:
    try:
        job = patient.do(patient.operations().get_job(NO_JOB))
    except errors.JobNotFound:
        report.add("get_job", "ok", "an unknown job is not found; that known ones are, a write shows")
        return
    report.add("get_job", "warning", f"a job that nobody started is {job.status}")


def _page(patient: Patient, report: Report, table_id: str) -> int:
    operations = patient.operations()
    page = patient.do(operations.query(table_id, limit=1))
    total = page.metadata.total_count  # type: ignore[union-attr]  # without an etag there is a page
    etag = page.etag  # type: ignore[union-attr]
    report.add("query", "ok", f"{total} rows, {'an etag' if etag else 'no etag'}")
    if etag:
        again = patient.do(operations.query(table_id, limit=1, etag=etag))
        text = "an unchanged table is told by 304" if again is None else "an etag is ignored: nothing is skipped by it"
        report.add("query", "ok" if again is None else "warning", text)
    return total or 0


def _result(patient: Patient, report: Report, table_id: str, rows: int) -> None:
    operations, begun = patient.operations(), perf_counter()
    if not rows:
        report.add("presigned GET", "skipped", "the table has no rows to fetch")
        return
    waiting = {"timeout": patient.patience, "poll_interval": 0.2}
    found = patient.do(operations.query(table_id, format="csv", **waiting))  # type: ignore[call-overload]
    lines = len(found.splitlines()) - 1
    text = f"csv, {lines} of {rows} rows, {len(found):,} bytes in {perf_counter() - begun:.1f} s"
    report.add("presigned GET", "ok" if lines == rows else "failed", text)
    found = patient.do(operations.query(table_id, format="parquet", **waiting))  # type: ignore[call-overload]
    whole = found.startswith(_PARQUET)
    report.add("presigned GET", "ok" if whole else "failed", f"parquet, {len(found):,} bytes")
