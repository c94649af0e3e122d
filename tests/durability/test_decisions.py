"""What a try decides, from what was stored and read: no service, no clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.client.models import DataJobResponse, DatasetInfoResponse
from airflow_tds.durability.decisions import (
    Adopt,
    Ambiguous,
    Attach,
    Attached,
    Choices,
    Clean,
    Hold,
    Policy,
    Start,
    begin,
    is_unchanged,
    settle_doubt,
    weigh,
)
from airflow_tds.durability.records import Generation, Record

LEASE = 1000.0
BEFORE, AFTER = LEASE - 0.001, LEASE
SETTLE, RENEW = Attach("", settle=True), Attach("", renew=True)
RESUME, NEW = Choices(on_clear="resume"), Choices(on_clear="new")
RESUBMIT, ASSUME = Choices(on_unknown="resubmit"), Choices(on_unknown="assume_done")
SAME, CLEARED, PERHAPS = Generation(1, 0), Generation(3, 1), Generation(1, 1)
RECORD = Record(
    "append",
    "t",
    "this",
    "c1",
    "initiated",
    job_id="j1",
    snapshot="s1",
    rows=1,
    lease=LEASE,
    seen="AWAITING",
    max_tries=1,
)


def at_begin(
    phase: Any,
    generation: Generation = SAME,
    identity: str = "this",
    content: str = "c1",
    choices: Choices = Choices(),  # noqa: B008  # frozen
) -> Any:
    return begin(replace(RECORD, phase=phase), generation, identity, content, choices)


UNFINISHED = pytest.mark.parametrize("phase", ["initiated", "sent"])
WITHOUT_ANSWER = pytest.mark.parametrize("phase", ["intent", "committing"])
EVERY_GENERATION = pytest.mark.parametrize("generation", [SAME, CLEARED, PERHAPS], ids=["same", "cleared", "perhaps"])
MAYBE_CLEARED = pytest.mark.parametrize("generation", [CLEARED, PERHAPS], ids=["cleared", "perhaps"])


def test_without_a_record_a_new_write_starts() -> None:
    assert begin(None, SAME, "this", "c1") == Start("no record: new write")


@EVERY_GENERATION
def test_after_a_clean_failure_a_new_write_starts(generation: Generation) -> None:
    assert isinstance(at_begin("failed_clean", generation, "other", "c2"), Start)


@EVERY_GENERATION
def test_a_doubt_stays_until_a_person_settles_it(generation: Generation) -> None:
    found = at_begin("doubt", generation)
    assert isinstance(found, Ambiguous)
    assert not found.doubt


def test_a_finished_write_is_not_written_again_by_a_retry() -> None:
    assert isinstance(at_begin("done"), Adopt)


def test_a_finished_write_says_when_the_source_has_changed_since() -> None:
    assert "the source has changed" in at_begin("done", content="c2").why


def test_a_retry_never_takes_another_finished_write_for_its_own() -> None:
    with pytest.raises(errors.DifferentWrite, match="clear the task to write anew"):
        at_begin("done", identity="other")


def test_a_cleared_finished_write_is_written_again_and_the_log_names_the_earlier_one() -> None:
    found = at_begin("done", CLEARED, "other", "c2")
    assert isinstance(found, Start)
    assert "job j1 was done at 1970-01-01 00:00:00 UTC" in found.why


def test_a_finished_write_that_was_perhaps_cleared_is_a_doubt_to_be_stored() -> None:
    assert at_begin("done", PERHAPS) == Ambiguous(
        "job j1 was done at 1970-01-01 00:00:00 UTC, and a task of this DAG run was cleared since, perhaps this one",
        may_still_apply=False,
        doubt=True,
    )


@UNFINISHED
@EVERY_GENERATION
def test_an_unfinished_write_is_gone_on_with(phase: str, generation: Generation) -> None:
    found = at_begin(phase, generation)
    assert isinstance(found, Attach)
    assert not found.settle


@WITHOUT_ANSWER
@EVERY_GENERATION
@pytest.mark.parametrize("choices", [Choices(), NEW, RESUME, RESUBMIT], ids=["defaults", "new", "resume", "resubmit"])
@pytest.mark.parametrize("content", ["c1", "c2"])
def test_a_request_without_an_answer_is_ambiguous_whatever_came_since(
    phase: str, generation: Generation, choices: Choices, content: str
) -> None:
    found = at_begin(phase, generation, content=content, choices=choices)
    assert isinstance(found, Ambiguous)
    assert found.may_still_apply


@WITHOUT_ANSWER
def test_a_request_without_an_answer_is_taken_for_done_where_a_person_says_so(phase: str) -> None:
    for generation, content in ((SAME, "c1"), (SAME, "c2"), (CLEARED, "c1"), (PERHAPS, "c1")):
        assert isinstance(at_begin(phase, generation, content=content, choices=ASSUME), Adopt)


@WITHOUT_ANSWER
@MAYBE_CLEARED
def test_a_request_of_other_content_is_not_taken_for_what_the_clear_asks_for(
    phase: str, generation: Generation
) -> None:
    assert isinstance(at_begin(phase, generation, content="c2", choices=ASSUME), Ambiguous)


@EVERY_GENERATION
def test_a_truncation_without_an_answer_is_gone_on_with_as_the_table_tells(generation: Generation) -> None:
    record = replace(RECORD, op="truncate", job_id="", phase="intent")
    assert isinstance(begin(record, generation, "this", "c1"), Attach)


@pytest.mark.parametrize("phase", ["intent", "committing", "initiated", "sent"])
@EVERY_GENERATION
def test_an_unfinished_record_of_another_write_is_an_error(phase: str, generation: Generation) -> None:
    with pytest.raises(errors.DifferentWrite, match=r"append on table t, job j1.*let that one finish"):
        at_begin(phase, generation, identity="other")


def test_within_a_generation_the_data_that_was_sent_first_counts() -> None:
    found = at_begin("sent", content="c2")
    assert isinstance(found, Attach)
    assert not found.settle
    assert "the source has changed" in found.why


@UNFINISHED
@MAYBE_CLEARED
def test_other_content_after_a_clear_settles_the_old_job_first(phase: str, generation: Generation) -> None:
    assert at_begin(phase, generation, content="c2").settle


@MAYBE_CLEARED
def test_content_that_cannot_be_told_is_not_taken_for_other_content(generation: Generation) -> None:
    assert not at_begin("sent", generation, content="").settle


def test_a_record_without_a_job_is_named_by_its_operation() -> None:
    record = replace(RECORD, op="truncate", job_id="", phase="intent")
    assert begin(record, SAME, "this", "c1") == Attach("record intent: re-attached to truncate")


@pytest.mark.parametrize(
    ("generation", "since"),
    [
        (Generation(1, 0), "same"),
        (Generation(2, 0), "cleared"),
        (Generation(0, 0), "cleared"),
        (Generation(2, 1), "cleared"),
        (Generation(1, 1), "perhaps"),
    ],
)
def test_a_generation_tells_a_retry_from_a_clear(generation: Generation, since: str) -> None:
    assert generation.since(RECORD) == since


# ---- the job


def at_weigh(
    status: str | None,
    now: float = AFTER,
    *,
    unchanged: bool = False,
    attach: Attach | None = None,
    choices: Choices = Choices(),  # noqa: B008  # frozen
    policy: Policy = Policy(),  # noqa: B008  # frozen
    no_data: tuple[str, ...] = ("AWAITING",),
    **changes: Any,
) -> Any:
    job = None if status is None else DataJobResponse(status=status, error="bad row" if status == "FAILED" else None)
    read = Attached(now, job, unchanged)
    return weigh(
        replace(RECORD, **changes), read, policy=policy, no_data_statuses=no_data, attach=attach, choices=choices
    )


BOTH_PHASES = pytest.mark.parametrize("phase", ["initiated", "sent"])


@BOTH_PHASES
def test_a_job_that_is_not_known_before_the_lease_is_waited_for(phase: str) -> None:
    found = at_weigh(None, BEFORE, phase=phase)
    assert isinstance(found, Hold)
    assert found.until == LEASE


@BOTH_PHASES
def test_a_job_that_is_not_known_after_the_lease_proves_nothing(phase: str) -> None:
    found = at_weigh(None, phase=phase)
    assert isinstance(found, Ambiguous)
    assert found.may_still_apply


VANISH = Policy(only_finished_jobs_vanish=True)


@BOTH_PHASES
def test_a_job_that_is_gone_has_ended_where_only_finished_jobs_vanish(phase: str) -> None:
    found = at_weigh(None, phase=phase, unchanged=True, policy=VANISH)
    assert isinstance(found, Start)
    assert found.clean
    assert isinstance(at_weigh(None, phase=phase, policy=VANISH), Ambiguous)
    assert isinstance(at_weigh(None, BEFORE, phase=phase, unchanged=True, policy=VANISH), Hold)


@BOTH_PHASES
@pytest.mark.parametrize("now", [BEFORE, AFTER])
def test_a_completed_job_is_adopted(phase: str, now: float) -> None:
    assert at_weigh("completed", now, phase=phase) == Adopt("job j1 COMPLETED")


def test_a_completed_job_of_other_content_is_ambiguous_and_settled() -> None:
    found = at_weigh("COMPLETED", attach=SETTLE)
    assert isinstance(found, Ambiguous)
    assert not found.may_still_apply
    assert found.unwritten


def test_a_failure_without_acknowledged_data_counts_only_after_the_lease() -> None:
    found = at_weigh("FAILED", BEFORE, unchanged=True)
    assert isinstance(found, Hold)
    assert found.until == LEASE


def test_a_failure_without_acknowledged_data_after_the_lease_leads_to_a_new_write() -> None:
    assert isinstance(at_weigh("FAILED", unchanged=True), Start)


@pytest.mark.parametrize("now", [BEFORE, AFTER])
def test_a_failure_of_acknowledged_data_on_an_unchanged_table_is_clean(now: float) -> None:
    assert at_weigh("FAILED", now, phase="sent", unchanged=True) == Clean("job j1 failed: bad row")


@BOTH_PHASES
@pytest.mark.parametrize("op", ["append", "upload"])
def test_a_failure_on_a_changed_table_is_ambiguous_and_settled(phase: str, op: str) -> None:
    found = at_weigh("FAILED", phase=phase, op=op)
    assert isinstance(found, Ambiguous)
    assert not found.may_still_apply


MENDED = pytest.mark.parametrize("op", ["overwrite", "upsert"])


@MENDED
def test_a_failure_that_another_write_mends_is_clean_as_long_as_the_connection_does_not_deny_it(op: str) -> None:
    assert isinstance(at_weigh("FAILED", phase="sent", op=op), Clean)


@MENDED
def test_a_failure_that_another_write_mends_is_judged_by_the_snapshot_where_failed_jobs_are_not_atomic(
    op: str,
) -> None:
    found = at_weigh("FAILED", phase="sent", op=op, policy=Policy(failed_jobs_are_atomic=False))
    assert isinstance(found, Ambiguous)


def test_a_failed_append_is_clean_where_failed_jobs_are_atomic() -> None:
    assert isinstance(at_weigh("FAILED", phase="sent", policy=Policy(failed_jobs_are_atomic=True)), Clean)


@pytest.mark.parametrize("now", [BEFORE, AFTER])
@pytest.mark.parametrize("status", ["QUEUED", "RUNNING", "anything"])
def test_acknowledged_data_is_waited_for_until_the_deadline(now: float, status: str) -> None:
    assert at_weigh(status, now, phase="sent") == Hold(f"job j1 is {status}")


def test_acknowledged_data_that_the_job_denies_is_waited_for_until_the_lease() -> None:
    assert at_weigh("awaiting", BEFORE, phase="sent").until == LEASE


def test_acknowledged_data_that_the_job_denies_after_the_lease_is_a_contradiction() -> None:
    found = at_weigh("awaiting", phase="sent")
    assert isinstance(found, Ambiguous)
    assert found.may_still_apply


@pytest.mark.parametrize("status", ["AWAITING", "RUNNING"])
def test_data_that_may_still_arrive_is_waited_for_until_the_lease(status: str) -> None:
    assert at_weigh(status, BEFORE).until == LEASE


def test_a_job_without_data_after_the_lease_leads_to_a_new_write() -> None:
    assert isinstance(at_weigh("awaiting"), Start)


def test_a_job_that_left_its_first_status_is_waited_for() -> None:
    found = at_weigh("RUNNING", seen="QUEUED", no_data=())
    assert isinstance(found, Hold)
    assert found.until is None


def test_a_job_that_reads_as_before_its_data_proves_nothing() -> None:
    found = at_weigh("queued", seen="QUEUED", no_data=())
    assert isinstance(found, Ambiguous)
    assert found.may_still_apply


def test_a_job_whose_first_status_is_unknown_proves_nothing_where_no_status_means_no_data() -> None:
    assert isinstance(at_weigh("QUEUED", seen="", no_data=()), Ambiguous)


def test_a_job_whose_first_status_is_unknown_is_waited_for_once_it_does_not_say_no_data() -> None:
    assert isinstance(at_weigh("QUEUED", seen=""), Hold)


# ---- what a person has decided beforehand


@EVERY_GENERATION
def test_resume_never_writes_a_finished_write_again(generation: Generation) -> None:
    assert isinstance(at_begin("done", generation, choices=RESUME), Adopt)


def test_resume_does_not_take_another_finished_write_for_its_own() -> None:
    with pytest.raises(errors.DifferentWrite, match="not with on_clear='resume'"):
        at_begin("done", CLEARED, "other", choices=RESUME)


@UNFINISHED
def test_new_goes_on_with_an_unfinished_write_to_write_again_after_it(phase: str) -> None:
    found = at_begin(phase, CLEARED, content="c2", choices=NEW)
    assert found.renew
    assert not found.settle


@UNFINISHED
@pytest.mark.parametrize("generation", [SAME, PERHAPS], ids=["same", "perhaps"])
def test_new_changes_nothing_without_a_certain_clear(phase: str, generation: Generation) -> None:
    assert at_begin(phase, generation, choices=NEW) == at_begin(phase, generation)


def test_new_does_not_resolve_a_doubt_about_a_finished_write() -> None:
    assert isinstance(at_begin("done", PERHAPS, choices=NEW), Ambiguous)


@BOTH_PHASES
@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_a_job_to_be_renewed_that_has_ended_leads_to_a_new_write_without_a_verdict_on_it(
    phase: str, status: str
) -> None:
    found = at_weigh(status, phase=phase, attach=RENEW)
    assert isinstance(found, Start)
    assert not found.clean


def test_a_job_to_be_renewed_whose_failure_does_not_count_yet_is_waited_out() -> None:
    assert at_weigh("FAILED", BEFORE, attach=RENEW).until == LEASE


@pytest.mark.parametrize("status", ["RUNNING", "AWAITING"])
def test_a_job_to_be_renewed_that_may_still_apply_is_waited_for(status: str) -> None:
    assert isinstance(at_weigh(status, BEFORE, attach=RENEW), Hold)


#: What cannot be known although the earlier job can no longer apply its data.
SETTLED: list[dict[str, Any]] = [{"status": "FAILED", "phase": "sent"}, {"status": "FAILED"}]
#: What cannot be known while the earlier write may still be applied.
OPEN: list[dict[str, Any]] = [
    {"status": None},
    {"status": "AWAITING", "phase": "sent"},
    {"status": "QUEUED", "seen": "QUEUED", "no_data": ()},
]
#: An operation that is judged by the snapshot, whichever it is.
SUSPECT = Policy(failed_jobs_are_atomic=False)


@pytest.mark.parametrize("op", ["upload", "append", "overwrite", "upsert"])
@pytest.mark.parametrize("case", SETTLED)
def test_resubmit_writes_again_what_can_no_longer_be_applied(op: str, case: dict[str, Any]) -> None:
    assert isinstance(at_weigh(**case, op=op, policy=SUSPECT, choices=RESUBMIT), Start)


@pytest.mark.parametrize("op", ["upload", "append"])
@pytest.mark.parametrize("case", OPEN)
def test_resubmit_writes_rows_again_after_the_lease_although_they_may_double(op: str, case: dict[str, Any]) -> None:
    found = at_weigh(**case, op=op, choices=RESUBMIT)
    assert isinstance(found, Start)
    assert not found.clean


@pytest.mark.parametrize("op", ["overwrite", "upsert"])
@pytest.mark.parametrize("case", OPEN)
def test_resubmit_never_replaces_what_a_late_first_write_would_replace_again(op: str, case: dict[str, Any]) -> None:
    assert isinstance(at_weigh(**case, op=op, choices=RESUBMIT), Ambiguous)


def test_resubmit_starts_nothing_before_the_lease() -> None:
    assert at_weigh(None, BEFORE, choices=RESUBMIT).until == LEASE


def test_resubmit_writes_other_content_beside_the_one_that_was_written() -> None:
    assert isinstance(at_weigh("COMPLETED", attach=SETTLE, choices=RESUBMIT), Start)


@pytest.mark.parametrize("case", [*SETTLED, *OPEN])
def test_assume_done_takes_what_is_unknown_for_written(case: dict[str, Any]) -> None:
    assert isinstance(at_weigh(**case, choices=ASSUME), Adopt)


def test_assume_done_does_not_take_other_content_for_what_was_asked_for() -> None:
    assert isinstance(at_weigh("COMPLETED", attach=SETTLE, choices=ASSUME), Ambiguous)
    assert isinstance(at_weigh("FAILED", phase="sent", attach=SETTLE, choices=ASSUME), Ambiguous)


@pytest.mark.parametrize(("phase", "generation"), [("doubt", SAME), ("doubt", CLEARED), ("done", PERHAPS)])
def test_a_doubt_about_a_finished_write_is_settled_by_what_was_decided_beforehand(
    phase: str, generation: Generation
) -> None:
    assert isinstance(at_begin(phase, generation, choices=RESUBMIT), Start)
    assert isinstance(at_begin(phase, generation, choices=ASSUME), Adopt)


@pytest.mark.parametrize("changed", [{"identity": "other"}, {"content": "c2"}])
def test_a_doubt_about_another_write_is_not_assumed_to_be_this_one(changed: dict[str, Any]) -> None:
    assert isinstance(at_begin("doubt", choices=ASSUME, **changed), Ambiguous)
    assert isinstance(at_begin("done", PERHAPS, choices=ASSUME, **changed), Ambiguous)


@WITHOUT_ANSWER
def test_a_request_without_an_answer_is_never_sent_again(phase: Any) -> None:
    intent = replace(RECORD, op="truncate", job_id="", phase=phase)
    assert isinstance(settle_doubt(Ambiguous("no answer"), intent, RESUBMIT), Ambiguous)
    assert isinstance(settle_doubt(Ambiguous("no answer"), replace(intent, op="append"), RESUBMIT), Ambiguous)


# ---- the table


@pytest.mark.parametrize(
    ("before", "rows", "now", "rows_now", "unchanged"),
    [
        ("s1", 1, "s1", 1, True),
        ("s1", 1, "s2", 1, False),
        ("s1", 1, None, 1, False),
        ("", 0, None, 0, True),
        ("", 0, "", 0, True),
        ("", 0, "s1", 0, False),
        ("", 0, None, 1, False),
        ("", 1, None, 1, False),
        ("", None, None, None, False),
    ],
)
def test_a_table_is_unchanged_if_its_snapshot_is_or_if_it_has_neither_snapshot_nor_rows(
    before: str, rows: int | None, now: str | None, rows_now: int | None, unchanged: bool
) -> None:
    record = replace(RECORD, snapshot=before, rows=rows)
    assert is_unchanged(record, DatasetInfoResponse(snapshot_id=now, row_count=rows_now)) is unchanged
