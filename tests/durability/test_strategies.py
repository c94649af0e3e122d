"""Writes whose job is known only once they are submitted, over real sockets: by commit, and by their own request.

Whoever finds that a request was about to be sent, and no answer, never sends another; anything before that
request changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.durability import Choices, Done, Generation

LIMIT = 60
STRATEGIES = pytest.mark.parametrize(
    ("op", "first"), [("append", "committing"), ("upload", "intent")], ids=["put_commit", "direct"]
)
CLEARED, PERHAPS = Generation(3, 1), Generation(1, 1)
BEFORE = {"append": ["1,a"], "upload": []}
AFTER = {"append": ["1,a", "2,b", "3,c"], "upload": ["2,b", "3,c"]}
OTHER_STRATEGY = {"line": "POST /sheets/{table_id}/ops", "strategy": "put_commit"}
NEW_DATA = b"id,name\n8,h\n"


class Died(BaseException):
    """The process is gone: nothing in it may catch this."""


class At:
    """Acts at one boundary, told by its name or its number; counts those that were passed."""

    def __init__(self, chosen: str | int, act: Callable[[], None]) -> None:
        self._chosen = chosen
        self._act = act
        self._passed = 0
        self.where = ""

    def __call__(self, where: str) -> None:
        self._passed += 1
        if self._chosen in (where, self._passed):
            self.where = where
            self._act()


def die() -> None:
    raise Died


def throw(error: BaseException) -> None:
    raise error


def at(where: str, error: BaseException) -> At:
    return At(where, partial(throw, error))


def unanswered() -> errors.UnexpectedReply:
    return errors.UnexpectedReply("the answer was cut")


def not_sent() -> errors.TlsFailed:
    error = errors.TlsFailed("not trusted")
    error.outcome = "not_sent"
    return error


@STRATEGIES
def test_a_request_is_recorded_before_it_is_sent_and_its_job_when_it_is_answered(
    others: Any, op: Any, first: str
) -> None:
    world = others(op)
    done = world.finish(world.write(op))

    assert world.disk.phases == [first, "sent", "done"]
    assert done == Done(world.disk.record.job_id)
    assert world.rows() == AFTER[op]


def test_a_commit_is_recorded_after_the_data_has_arrived(others: Any) -> None:
    world, passed = others(), list[str]()
    world.write(at=passed.append).advance(world.watch())

    start = passed.index("after put is sent")
    assert passed[start + 1 : start + 4] == [
        "before committing is stored",
        "after committing is stored",
        "before append is sent",
    ]


def test_a_source_that_is_spooled_is_read_before_the_record_says_that_a_request_is_sent(others: Any) -> None:
    world, passed = others("upload"), list[str]()
    world.write("upload", at=passed.append, unknown_length="spool").advance(world.watch())

    assert passed.index("within the data") < passed.index("before intent is stored")


def test_a_source_that_breaks_off_before_it_is_sent_leaves_no_record(others: Any) -> None:
    world = others("upload")
    broken = at("within the data", LookupError("no such row"))
    with pytest.raises(LookupError):
        world.write("upload", at=broken, unknown_length="spool").advance(world.watch())

    assert world.disk.text is None


@STRATEGIES
def test_a_try_that_dies_at_any_boundary_writes_once_or_is_ambiguous(others: Any, op: Any, first: str) -> None:
    ambiguous = []
    for chosen in range(1, LIMIT):
        world, died = others(op), At(chosen, die)
        try:
            world.finish(world.write(op, at=died))
        except Died:
            try:
                world.finish(world.write(op))
            except errors.AmbiguousWriteError:
                ambiguous.append(died.where)
        assert world.rows() in ((BEFORE[op], AFTER[op]) if died.where in ambiguous else (AFTER[op],)), died.where
        if not died.where:
            break
    within = ["within the data"] if op == "upload" else []
    assert ambiguous == [
        f"after {first} is stored",
        f"before {op} is sent",
        *within,
        f"after {op} is sent",
        "before sent is stored",
    ]


@STRATEGIES
@pytest.mark.parametrize("choices", [Choices(on_clear="new"), Choices(on_unknown="resubmit")], ids=["new", "resubmit"])
@pytest.mark.parametrize("generation", [Generation(1, 0), CLEARED, PERHAPS], ids=["retry", "cleared", "perhaps"])
def test_a_request_without_an_answer_is_never_followed_by_another(
    others: Any, op: Any, first: str, choices: Choices, generation: Generation
) -> None:
    world = others(op)
    with pytest.raises(errors.AmbiguousWriteError, match=f"Job: none; phase: {first}"):
        world.write(op, at=at(f"after {op} is sent", unanswered())).advance(world.watch())
    world.generation = generation

    with pytest.raises(errors.AmbiguousWriteError, match="may still be applied"):
        world.finish(world.write(op, choices=choices))
    assert world.disk.phases == [first]
    assert world.rows() == AFTER[op]


@STRATEGIES
def test_a_request_that_is_killed_while_it_is_under_way_is_not_sent_again(others: Any, op: Any, first: str) -> None:
    world, killed = others(op), errors.Stopped("told to stop")
    killed.outcome = "unknown"
    with pytest.raises(errors.Stopped):
        world.write(op, at=at(f"after {op} is sent", killed)).advance(world.watch())

    with pytest.raises(errors.AmbiguousWriteError):
        world.finish(world.write(op))
    assert world.rows() == AFTER[op]


@STRATEGIES
def test_a_request_without_an_answer_is_done_where_a_person_says_so_beforehand(
    others: Any, op: Any, first: str
) -> None:
    world = others(op)
    once = world.write(op, at=at(f"after {op} is sent", unanswered()), choices=Choices(on_unknown="assume_done"))

    assert world.finish(once) == Done("")
    assert world.disk.phases == [first, "done"]


@STRATEGIES
def test_other_data_after_a_clear_is_not_assumed_to_be_what_was_sent(others: Any, op: Any, first: str) -> None:
    world = others(op)
    with pytest.raises(Died):
        world.write(op, at=At(f"before {op} is sent", die)).advance(world.watch())
    world.generation = CLEARED

    with pytest.raises(errors.AmbiguousWriteError):
        world.finish(world.write(op, NEW_DATA, choices=Choices(on_unknown="assume_done")))
    assert world.disk.record.phase == first


@STRATEGIES
@pytest.mark.parametrize(
    "refused",
    [errors.Refused("no", status=413), not_sent()],
    ids=["refused", "not sent"],
)
def test_a_request_that_was_not_processed_leaves_a_clean_failure_and_a_retry_writes(
    others: Any, op: Any, first: str, refused: errors.TableServiceError
) -> None:
    world = others(op)
    with pytest.raises(type(refused)):
        world.write(op, at=At(f"before {op} is sent", partial(throw, refused))).advance(world.watch())
    assert world.disk.phases[-1] == "failed_clean"

    world.finish(world.write(op))
    assert world.rows() == AFTER[op]


@pytest.mark.parametrize(
    ("error", "phase"), [(errors.Forbidden("no", status=403), "failed_clean"), (unanswered(), "committing")]
)
def test_a_cleared_write_that_fails_does_not_bring_the_earlier_done_back(
    others: Any, error: errors.TableServiceError, phase: str
) -> None:
    world = others()
    world.finish(world.write())
    world.generation = CLEARED
    with pytest.raises(errors.TableServiceError):
        world.write(at=at("before append is sent", error)).advance(world.watch())

    assert world.disk.record.phase == phase


@pytest.mark.parametrize("where", ["before presign is sent", "before put is sent", "after put is sent"])
def test_data_that_was_not_committed_leaves_no_record_and_a_retry_writes(others: Any, where: str) -> None:
    world = others()
    with pytest.raises(errors.UnexpectedReply):
        world.write(at=at(where, unanswered())).advance(world.watch())
    assert world.disk.text is None

    world.finish(world.write())
    assert world.rows() == AFTER["append"]


@STRATEGIES
def test_a_try_that_is_paused_at_any_boundary_and_goes_on_after_another_writes_nothing_twice(
    others: Any, op: Any, first: str, fenced: type[Exception]
) -> None:
    seen = set[str]()
    for chosen in range(1, LIMIT):
        world = others(op)
        paused = At(chosen, partial(another_try, world, op, seen))
        try:
            world.finish(world.write(op, at=paused))
        except (fenced, errors.TableServiceError) as error:
            seen.add(type(error).__name__)
        assert world.rows() in (BEFORE[op], AFTER[op]), paused.where
        if not paused.where:
            break
    assert seen >= {"Fenced", "AmbiguousWriteError", "done"}


def another_try(world: Any, op: Any, seen: set[str]) -> None:
    try:
        world.finish(world.write(op, choices=Choices(on_unknown="resubmit")))
        seen.add("done")
    except errors.TableServiceError as error:
        seen.add(type(error).__name__)


@STRATEGIES
def test_a_stale_try_sends_no_request_that_could_be_applied(
    others: Any, op: Any, first: str, fenced: type[Exception]
) -> None:
    world = others(op)
    stale = world.write(op)
    world.disk.owner = object()
    with pytest.raises(fenced):
        stale.advance(world.watch())

    assert world.other.tickets == []


@STRATEGIES
def test_a_job_that_is_not_known_at_once_is_waited_for_as_long_as_the_connection_says(
    others: Any, op: Any, first: str
) -> None:
    world = others(op)
    once = world.write(op, at=at("before get_job is sent", errors.JobNotFound("not yet", status=404)))
    step = once.advance(world.watch())
    assert step.watch.deadline == world.disk.record.lease <= world.clock() + world.policy.lease_margin

    world.clock.turn_to(world.disk.record.lease)
    with pytest.raises(errors.AmbiguousWriteError, match="not known to the service any more"):
        once.advance(world.watch())


@STRATEGIES
def test_a_job_that_failed_on_an_unchanged_table_is_clean_and_mended_data_is_written(
    others: Any, op: Any, first: str
) -> None:
    world = others(op)
    with pytest.raises(errors.JobFailed, match="it holds no rows"):
        world.finish(world.write(op, b""))
    assert world.disk.record.phase == "failed_clean"

    world.finish(world.write(op))
    assert world.rows() == AFTER[op]


def test_a_record_of_another_strategy_is_followed_as_it_was_begun(others: Any) -> None:
    world = others()
    with pytest.raises(Died):
        world.write("overwrite", at=At("after put is sent", die)).advance(world.watch())
    assert world.disk.record.phase == "initiated"

    world.overrides = {"overwrite": OTHER_STRATEGY}
    world.finish(world.write("overwrite"))
    assert world.rows() == ["2,b", "3,c"]
    assert len(world.other.tickets) == 1
