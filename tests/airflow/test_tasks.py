"""What a task instance gives to durable work: where its record is, and how long it may wait."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from harness import HAS_SDK, TaskRun

from airflow_tds.client import errors
from airflow_tds.tasks import store_of, watch_of

LOG = logging.getLogger("tasks")


def name_of(place: str, slot: str = "", **names: Any) -> str:
    """Say where a task instance's record would be."""
    context = TaskRun().context()
    context["ti"] = SimpleNamespace(**(vars(context["ti"]) | names))
    return store_of(context, LOG, place=place, durable=True, slot=slot).name


def test_a_variable_is_named_by_dag_run_task_map_index_and_slot() -> None:
    assert name_of("variable", slot="append:t/1") == "the Variable dag__run__it__-1__tds.write.v1.append%3At%2F1"


def test_a_variables_key_that_would_be_too_long_is_cut_and_stays_its_own() -> None:
    names = [name_of("variable", run_id="r" * 300 + end) for end in "ab"]

    assert {len(name.removeprefix("the Variable ")) for name in names} == {250}
    assert len(set(names)) == 2


@pytest.mark.parametrize(("run_id", "folder"), [("a/../b", "a%2F..%2Fb"), ("..", "%2E."), (".", "%2E")])
def test_no_name_opens_another_folder(run_id: str, folder: str) -> None:
    assert name_of("/records", run_id=run_id) == f"the file /records/dag/{folder}/it/-1/tds.write.v1.json"


@pytest.mark.parametrize(
    ("timeout", "execution_timeout", "seconds"),
    [(None, None, 7 * 24 * 3600), (60, None, 60), (60, 30, 28), (10, 30, 10), (None, 30, 28)],
)
def test_ours_ends_before_the_tasks_own_timeout(
    timeout: float | None, execution_timeout: float | None, seconds: float
) -> None:
    limit = None if execution_timeout is None else timedelta(seconds=execution_timeout)
    watch = watch_of(timeout, limit, 5.0)

    assert watch.deadline - watch.started == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("execution_timeout", "seconds"), [(7200, 6480), (120, 90), (40, 20)], ids=["a tenth", "half a minute", "half"]
)
def test_a_deferred_wait_leaves_time_for_the_way_back_where_airflow_ends_it(
    execution_timeout: float, seconds: float
) -> None:
    watch = watch_of(None, timedelta(seconds=execution_timeout), 5.0, deferred=True)

    assert watch.deadline - watch.started == pytest.approx(execution_timeout - 2 if HAS_SDK else seconds)


@pytest.mark.parametrize(("timeout", "interval"), [(0, 5.0), (-1, 5.0), (5, 0.0), (float("nan"), 5.0)])
def test_no_time_to_wait_is_refused(timeout: float, interval: float) -> None:
    with pytest.raises(errors.ValidationFailed, match="seconds above zero"):
        watch_of(timeout, None, interval)
