"""What a task instance gives to durable work: which run of it this is, how long it may wait, where its record is.

Between Airflow and durability, so that operators and `@task` code get the same. No connection, no client.
"""

from __future__ import annotations

import hashlib
import time
from datetime import timedelta
from pathlib import Path
from urllib.parse import quote

from airflow_tds.client import errors
from airflow_tds.client.waiting import Watch
from airflow_tds.compat import (
    Context,
    clear_number,
    ends_deferred_tasks,
    never_expire,
    object_storage,
    task_state_store,
    variables,
)
from airflow_tds.durability import (
    FileStore,
    Generation,
    MemoryStore,
    ObjectStore,
    Record,
    RecordStore,
    TaskStore,
    VariableStore,
)
from airflow_tds.durability.steps import Log

__all__ = ["claim", "generation_of", "store_of", "watch_of"]

#: Where the record of a task's write is kept in its state store.
RECORD_KEY = "tds.write.v1"
#: The first pause of a wait, seconds; jobs of a service rarely take less.
FIRST_PAUSE = 1.0
#: Seconds between two reads at most: a deferred wait costs no worker, a blocking one should end soon.
DEFERRED_INTERVAL = 30.0
BLOCKING_INTERVAL = 5.0
#: Without a timeout of its own or the task's: a job that takes longer needs a person.
LONGEST_WAIT = 7 * 24 * 3600.0
#: Airflow's own timeout must not come before ours, which says what goes on: seconds.
MARGIN = 2.0
#: Where Airflow ends deferred tasks too, the way back into a worker needs time: seconds, or this part of the timeout.
MARGIN_DEFERRED = 30.0
SHARE_DEFERRED = 0.1
#: Longest key of a Variable (Airflow's column).
LONGEST_KEY = 250

#: What this process has written already, by execution and slot.
_claimed: set[tuple[str, ...]] = set()


def generation_of(context: Context) -> Generation:
    """Say which run of its task this is.

    Args:
        context: Airflow's.
    """
    return Generation(context["ti"].max_tries, clear_number(context))


def watch_of(
    timeout: float | None, execution_timeout: timedelta | None, poll_interval: float, *, deferred: bool = False
) -> Watch:
    """Say how long to wait, from now.

    Args:
        timeout: Seconds; None means the task's own limit, else 7 days.
        execution_timeout: The task's; ours ends before it, as ours says what goes on.
        poll_interval: Seconds between two reads at most.
        deferred: Whether the wait is the triggerer's.

    Raises:
        ValidationFailed: There is no time to wait.
    """
    now = time.time()
    limit = timeout if timeout is not None else LONGEST_WAIT
    if execution_timeout is not None:
        limit = min(limit, _before(execution_timeout.total_seconds(), deferred=deferred))
    if not limit > 0 or not poll_interval > 0:
        raise errors.ValidationFailed("timeout and poll_interval are seconds above zero")
    return Watch("write", "", now, now + limit, poll_interval, min(FIRST_PAUSE, poll_interval))


def _before(seconds: float, *, deferred: bool) -> float:
    """Say when to end, so that Airflow's own timeout comes later."""
    if not (deferred and ends_deferred_tasks()):
        return seconds - MARGIN
    return seconds - min(max(MARGIN_DEFERRED, SHARE_DEFERRED * seconds), seconds / 2)


def store_of(
    context: Context,
    log: Log,
    *,
    place: str | None,
    durable: bool,
    slot: str = "",
    record: Record | None = None,
    harmless: bool = False,
) -> RecordStore:
    """Find where the record of a task's write is kept.

    Args:
        context: Airflow's.
        log: Says once what a weaker place does not protect from.
        place: None for the task's state store, `variable`, or the path or object-storage URI of a folder.
        durable: Whether to keep a record at all.
        slot: Which of several writes of one task; empty for the only one.
        record: What a deferral carried, where no store keeps it.
        harmless: Whether a retry that starts anew changes nothing.
    """
    key = f"{RECORD_KEY}.{quote(slot, safe='')}" if slot else RECORD_KEY
    if durable and place:
        log.info("the record is kept in %s: it protects from crashes, not from a lost try that is still alive", place)
        return _place(context, place, key)
    accessor = task_state_store(context) if durable else None
    if accessor is not None:
        return TaskStore(accessor, key, never_expire())
    if record is None and not harmless:
        why = "this Airflow has no task state store (3.3 and later have; store= names another place)"
        log.warning(
            "%s: if this try dies, a retry starts anew and rows may double", why if durable else "durable=False"
        )
    return MemoryStore(record)


def _place(context: Context, place: str, key: str) -> RecordStore:
    """Open a place of the user's; each task instance has its own record there."""
    ti = context["ti"]
    names = [ti.dag_id, ti.run_id, ti.task_id, str(ti.map_index), key]
    if place == "variable":
        whole = "__".join(names)
        if len(whole) > LONGEST_KEY:
            whole = whole[: LONGEST_KEY - 17] + "_" + hashlib.sha256(whole.encode()).hexdigest()[:16]
        return VariableStore(variables(), whole)
    parts = [*(_folder(name) for name in names[:-1]), f"{key}.json"]
    if "://" in place and not place.startswith("file://"):
        return ObjectStore(object_storage(place).joinpath(*parts))
    return FileStore(Path(place.removeprefix("file://")).joinpath(*parts))


def _folder(name: str) -> str:
    """Make a name one folder: a run's id is chosen by whoever triggers it, and may be `..`."""
    written = quote(name, safe="")
    return f"%2E{written[1:]}" if written.startswith(".") else written


def claim(context: Context, slot: str) -> None:
    """Take a slot of this execution: two writes in one would be taken for each other by a retry.

    Args:
        context: Airflow's.
        slot: Which of the task's writes.

    Raises:
        ValidationFailed: This execution has used the slot already.
    """
    ti = context["ti"]
    mine = (ti.dag_id, ti.run_id, ti.task_id, str(ti.map_index), str(ti.try_number), slot)
    if mine in _claimed:
        raise errors.ValidationFailed(
            f"this task has written to slot {slot!r} already: give each of its writes a slot= of its own"
        )
    _claimed.add(mine)
