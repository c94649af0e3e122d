"""A deletion that takes effect after its answer: it is waited for by the table's snapshot, and sent once."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.durability import Choices, DeleteOnce, Done, Generation, Wait

CLEARED = Generation(2, 1)


def deletion(world: Any, **given: Any) -> DeleteOnce:
    """A try that waits for another snapshot."""
    return DeleteOnce(
        world.attempt(**given), table_id=world.table_id, identity="this", filters="id:eq:1", wait_for_snapshot=True
    )


@pytest.fixture
def answered(world: Any) -> Any:
    """A world whose service has answered a deletion, and not done it yet."""
    world.service.fault("delete_rows", status=204)
    assert isinstance(deletion(world).advance(world.watch()), Wait)
    return world


def test_a_deletion_in_effect_at_its_answer_is_done(world: Any) -> None:
    assert deletion(world).advance(world.watch()) == Done("")
    assert world.disk.phases == ["intent", "sent", "done"]


def test_a_later_one_is_waited_for_by_the_tables_snapshot(answered: Any) -> None:
    step = deletion(answered).advance(answered.watch())

    assert isinstance(step, Wait)
    assert (step.watch.kind, step.watch.subject) == ("table", answered.table_id)
    assert answered.disk.record.snapshot in step.watch.conditions


def test_a_later_try_goes_on_waiting_and_sends_nothing(answered: Any) -> None:
    answered.reader.delete_rows(answered.table_id, "id:eq:1")

    assert deletion(answered).advance(answered.watch()) == Done("")
    assert answered.disk.phases == ["intent", "sent", "done"]
    assert answered.requested("delete_rows") == 2  # the service's own, late, is the other


def test_a_deletion_that_is_not_seen_in_time_is_not_sent_again(answered: Any) -> None:
    with pytest.raises(errors.WaitTimedOut, match=r"still has snapshot .* sent once and is not sent again"):
        deletion(answered).advance(answered.watch(-1.0))
    assert answered.requested("delete_rows") == 1


def test_a_clear_that_asks_for_a_new_one_waits_for_the_earlier_one_first(answered: Any) -> None:
    answered.generation = CLEARED
    new = Choices(on_clear="new")
    assert isinstance(deletion(answered, choices=new).advance(answered.watch()), Wait)
    answered.reader.delete_rows(answered.table_id, "id:eq:1")
    answered.reader.append(answered.table_id, b"id,name\n1,again\n", poll_interval=0.02)

    assert deletion(answered, choices=new).advance(answered.watch()) == Done("")
    assert answered.rows() == []


def test_a_service_that_tells_no_snapshot_is_sent_nothing(worlds: Any) -> None:
    world = worlds(rows=b"")  # a table that never had data has none

    with pytest.raises(errors.UnexpectedReply, match="info tells no snapshot_id, so wait_for_snapshot cannot be kept"):
        deletion(world).advance(world.watch())
    assert world.requested("delete_rows") == 0
