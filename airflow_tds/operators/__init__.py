"""One class per operation, over one base that does its work once, waits, and says how it ended.

`failures` (what ends a task at once), `base`, then `writes`, `requests` and `queries`, one room per kind of
work. This file only says what DAGs import; it is loaded whenever one is parsed, so nothing heavy is imported.
"""

from airflow_tds.operators.base import RESCUES
from airflow_tds.operators.queries import TdsCrossQueryOperator
from airflow_tds.operators.requests import TdsDeleteRowsOperator, TdsTruncateOperator
from airflow_tds.operators.writes import (
    TdsAppendOperator,
    TdsOverwriteOperator,
    TdsUpdateOperator,
    TdsUploadOperator,
    TdsUpsertOperator,
)

__all__ = [
    "RESCUES",
    "TdsAppendOperator",
    "TdsCrossQueryOperator",
    "TdsDeleteRowsOperator",
    "TdsOverwriteOperator",
    "TdsTruncateOperator",
    "TdsUpdateOperator",
    "TdsUploadOperator",
    "TdsUpsertOperator",
]
