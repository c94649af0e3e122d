"""A table gets each write once: the record of a write, the decision over it, and the order of its steps.

Rooms, each importing those before it only: `records` (what is stored), `stores` (where), `decisions`
(pure), `steps` (what all durable work shares), `sources` (what is written), and the work itself: `writes`, `loads`,
`requests`, `queries`. This file only says what the rest of the house may use.
"""

from airflow_tds.durability.decisions import LEASE_MARGIN, Choices, Policy
from airflow_tds.durability.loads import LoadOnce
from airflow_tds.durability.queries import GivenQuery, QueryOnce
from airflow_tds.durability.records import Generation, Record, digest
from airflow_tds.durability.requests import DeleteOnce, TruncateOnce
from airflow_tds.durability.sources import Source
from airflow_tds.durability.steps import Attempt, Done, Once, Wait
from airflow_tds.durability.stores import FileStore, MemoryStore, ObjectStore, RecordStore, TaskStore, VariableStore
from airflow_tds.durability.writes import Write, WriteOnce

__all__ = [
    "LEASE_MARGIN",
    "Attempt",
    "Choices",
    "DeleteOnce",
    "Done",
    "FileStore",
    "Generation",
    "GivenQuery",
    "LoadOnce",
    "MemoryStore",
    "ObjectStore",
    "Once",
    "Policy",
    "QueryOnce",
    "Record",
    "RecordStore",
    "Source",
    "TaskStore",
    "TruncateOnce",
    "VariableStore",
    "Wait",
    "Write",
    "WriteOnce",
    "digest",
]
