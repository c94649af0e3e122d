"""A try dies, or is paused and given up, at every boundary in turn: the table holds the rows exactly once.

The boundaries are counted, not listed: each request before and after it is sent, each record before and
after it is stored, and the middle of the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.durability import Generation, Wait

LIMIT = 60
OPS = pytest.mark.parametrize(
    ("op", "existing", "expected"),
    [
        ("upload", b"", ["2,b", "3,c"]),
        ("append", b"id,name\n1,a\n", ["1,a", "2,b", "3,c"]),
        ("upsert", b"id,name\n1,a\n2,x\n", ["1,a", "2,b", "3,c"]),
        ("overwrite", b"id,name\n1,a\n", ["2,b", "3,c"]),
    ],
)


class Died(BaseException):
    """The process is gone: nothing in it may catch this."""


class Boundaries:
    """Counts the boundaries that a try passes, and does something at one of them."""

    def __init__(self, chosen: int, act: Callable[[], None], *, within_data: bool = True) -> None:
        self._chosen = chosen
        self._act = act
        self._within_data = within_data
        self.passed = 0
        self.where = ""

    def __call__(self, where: str) -> None:
        if where == "within the data" and not self._within_data:
            return
        self.passed += 1
        if self.passed == self._chosen:
            self.where = where
            self._act()

    @property
    def reached(self) -> bool:
        return bool(self.where)


def die() -> None:
    raise Died


def ignore(where: str) -> None:
    """Be the boundaries of a try at which nothing happens."""


def crash_at_each(attempt: Callable[[Boundaries], None]) -> list[str]:
    """Run an attempt once per boundary, until one passes them all; give the boundaries' names."""
    names: list[str] = []
    for chosen in range(1, LIMIT):
        boundaries = Boundaries(chosen, die)
        attempt(boundaries)
        if not boundaries.reached:
            return names
        names.append(boundaries.where)
    raise AssertionError(f"more than {LIMIT} boundaries")


@OPS
def test_a_write_that_dies_at_any_boundary_is_applied_once(
    worlds: Any, op: Any, existing: bytes, expected: list[str]
) -> None:
    def attempt(boundaries: Boundaries) -> None:
        world = worlds(existing)
        try:
            world.finish(world.write(op, at=boundaries))
        except Died:
            world.finish(world.write(op))
        assert world.settled_rows(len(expected)) == expected, boundaries.where
        assert world.disk.record.phase == "done"

    names = crash_at_each(attempt)
    assert {"before put is sent", "within the data", "after put is sent", "after initiated is stored"} <= set(names)
    assert {"before initiated is stored", "before sent is stored", "before done is stored"} <= set(names)


@pytest.mark.parametrize("later", [1, 8, 15])
def test_a_write_that_dies_in_two_tries_is_applied_once(worlds: Any, later: int) -> None:
    def attempt(boundaries: Boundaries) -> None:
        world = worlds()
        for at in (boundaries, Boundaries(later, die), ignore):
            try:
                world.finish(world.write(at=at))
                break
            except Died:
                continue
        assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]

    crash_at_each(attempt)


@OPS
def test_a_write_that_is_cleared_after_it_died_at_any_boundary_is_applied_once(
    worlds: Any, op: Any, existing: bytes, expected: list[str]
) -> None:
    def attempt(boundaries: Boundaries) -> None:
        world = worlds(existing)
        try:
            world.finish(world.write(op, at=boundaries))
        except Died:
            if world.disk.text is not None and world.disk.record.phase == "done":
                return  # the documented limit: done, success not recorded, cleared
            world.generation = Generation(3, 1)
            world.finish(world.write(op))
        assert world.settled_rows(len(expected)) == expected, boundaries.where

    crash_at_each(attempt)


def finish_another(world: Any, op: Any) -> None:
    world.finish(world.write(op))


@OPS
def test_a_try_that_is_paused_at_any_boundary_and_goes_on_after_another_applies_nothing_twice(
    worlds: Any, op: Any, existing: bytes, expected: list[str], fenced: type[Exception]
) -> None:
    refused = set()
    for chosen in range(1, LIMIT):
        world = worlds(existing)
        paused = Boundaries(chosen, partial(finish_another, world, op), within_data=False)
        try:
            world.finish(world.write(op, at=paused))
        except (fenced, errors.TableServiceError) as error:
            refused.add(type(error).__name__)
        assert world.settled_rows(len(expected)) == expected, paused.where
        if not paused.reached:
            break
    assert refused >= {"Fenced", "StorageRefused"}


def test_a_stale_try_sends_no_data(world: Any, fenced: type[Exception]) -> None:
    stale = world.write()
    world.disk.owner = object()
    with pytest.raises(fenced):
        stale.advance(world.watch())
    assert world.requested("append") == 1
    assert world.requested("put_payload") == 0


def test_a_try_that_cannot_store_sends_no_data(world: Any) -> None:
    def refuse(where: str) -> None:
        if where == "before initiated is stored":
            raise OSError("the store is away")

    with pytest.raises(OSError, match="the store is away"):
        world.write(at=refuse).advance(world.watch())
    assert world.requested("put_payload") == 0
    world.finish(world.write())
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def test_a_deletion_that_dies_at_any_boundary_is_sent_at_most_once(worlds: Any) -> None:
    ambiguous = []

    def attempt(boundaries: Boundaries) -> None:
        world = worlds()
        try:
            world.finish(world.deletion(at=boundaries))
        except Died:
            try:
                world.finish(world.deletion())
            except errors.AmbiguousWriteError:
                ambiguous.append(boundaries.where)
        assert world.requested("delete_rows") <= 1
        if boundaries.where not in ambiguous:
            assert world.rows() == []

    crash_at_each(attempt)
    assert ambiguous == [
        "after intent is stored",
        "before delete_rows is sent",
        "after delete_rows is sent",
        "before sent is stored",
    ]


def test_a_truncation_that_dies_at_any_boundary_is_sent_at_most_once(worlds: Any) -> None:
    ambiguous = []

    def attempt(boundaries: Boundaries) -> None:
        world = worlds()
        try:
            world.finish(world.truncation(at=boundaries))
        except Died:
            try:
                again = world.truncation()
                watch = world.watch()
                while isinstance(step := again.advance(watch), Wait):
                    if world.requested("truncate"):
                        world.pass_time(step.watch)
                    else:
                        world.turn_to(watch.deadline)
            except errors.AmbiguousWriteError:
                ambiguous.append(boundaries.where)
                assert world.rows() == ["1,a"]
                return
        assert world.requested("truncate") == 1
        assert world.rows() == []

    crash_at_each(attempt)
    assert ambiguous == ["after intent is stored", "before truncate is sent"]


def test_a_query_that_dies_at_any_boundary_is_gone_on_with_once_it_is_recorded(worlds: Any) -> None:
    def attempt(boundaries: Boundaries) -> None:
        world = worlds()
        recorded = 0
        try:
            world.finish(world.query(at=boundaries))
        except Died:
            recorded = world.disk.text is not None
            world.finish(world.query())
        if recorded or not boundaries.reached or boundaries.where == "before submit_cross_query is sent":
            assert world.requested("start_query") == 1
        else:
            assert world.requested("start_query") == 2

    crash_at_each(attempt)


def test_a_killed_task_reads_nothing_of_the_table_that_it_wrote(world: Any) -> None:
    once = world.write()
    world.finish(once)
    world.clients[-1].stop()
    with pytest.raises(errors.Stopped):
        once.left(world.table_id)
