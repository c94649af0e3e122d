"""One class per operation, over one base that does its work once, waits, and says how it ended.

`failures` (what ends a task at once), `deferring` (out of a worker and back), `base`, then `writes`, `requests`,
`queries` and `tables`, one room per kind of work. This file only says what DAGs import; it is loaded whenever one is
parsed, so nothing heavy is imported.
"""

from airflow_tds.operators.deferring import RESCUES
from airflow_tds.operators.queries import TdsCrossQueryOperator, TdsDownloadOperator, TdsQueryOperator
from airflow_tds.operators.requests import TdsDeleteRowsOperator, TdsTruncateOperator
from airflow_tds.operators.tables import TdsCheckOperator, TdsTableInfoOperator
from airflow_tds.operators.writes import (
    TdsAppendOperator,
    TdsLoadOperator,
    TdsOverwriteOperator,
    TdsUpdateOperator,
    TdsUploadOperator,
    TdsUpsertOperator,
)

__all__ = [
    "RESCUES",
    "TdsAppendOperator",
    "TdsCheckOperator",
    "TdsCrossQueryOperator",
    "TdsDeleteRowsOperator",
    "TdsDownloadOperator",
    "TdsLoadOperator",
    "TdsOverwriteOperator",
    "TdsQueryOperator",
    "TdsTableInfoOperator",
    "TdsTruncateOperator",
    "TdsUpdateOperator",
    "TdsUploadOperator",
    "TdsUpsertOperator",
]
