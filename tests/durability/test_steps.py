"""Writes, truncations and queries over real sockets: the order of their steps and every way on."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_tds.client import errors
from airflow_tds.client.client import TableClient
from airflow_tds.client.waiting import Verdict
from airflow_tds.client.wire import Wire
from airflow_tds.durability import Attempt, Choices, Done, Generation, MemoryStore, Policy, TruncateOnce, Wait

CLEARED, PERHAPS = Generation(3, 1), Generation(1, 1)
NEW_DATA = b"id,name\n8,h\n"


def raising(where: str, error: BaseException) -> Callable[[str], None]:
    """Give a boundary that raises, each time it is passed."""

    def at(passed: str) -> None:
        if passed == where:
            raise error

    return at


def ignore(where: str) -> None:
    """Be the boundary at which nothing goes wrong."""


def unanswered() -> errors.UnexpectedReply:
    """Give an error after which nobody knows whether the request was processed."""
    return errors.UnexpectedReply("the answer was cut")


def fail_job(world: Any, job_id: str) -> None:
    """Let the service fail a job that it has not begun."""
    store = world.service._store
    store.fail(store.job(job_id), "out of luck")


# ---- a write


def test_the_job_is_known_and_stored_before_its_data_is_sent(world: Any) -> None:
    assert isinstance(world.finish(world.write()), Done)
    operations = [request.operation for request in world.service.requests]
    assert operations[:4] == ["info", "append", "get_job", "put_payload"]
    assert world.disk.phases == ["initiated", "sent", "done"]


def test_the_record_says_what_the_table_and_the_job_were_before_the_data(world: Any) -> None:
    before = world.reader.info(world.table_id)
    done = world.finish(world.write())
    record = world.disk.record
    assert (record.snapshot, record.rows, record.seen, record.job_id) == (
        before.snapshot_id,
        1,
        "AWAITING",
        done.job_id,
    )


def test_a_write_is_handed_over_only_when_the_service_said_that_it_has_the_data(world: Any) -> None:
    world.service.hold()
    once = world.write(at=raising("after put is sent", unanswered()))
    once.advance(world.watch())

    assert (once.hand_over(), world.disk.record.phase) == (None, "initiated")


def test_the_lease_counts_from_the_answer_to_the_initiation(world: Any) -> None:
    def dawdle(where: str) -> None:
        if where == "after append is sent":
            world.clock.ahead += 500

    answered = world.clock() + 500
    with pytest.raises(errors.StorageRefused, match="expired"):
        world.write(at=dawdle).advance(world.watch())
    assert world.disk.record.lease >= answered + 59 + 30 + 5  # the server's Date tells whole seconds


def test_every_stored_record_has_the_generation_of_its_own_try(world: Any) -> None:
    world.write().advance(world.watch())
    world.generation = CLEARED
    world.finish(world.write())
    record = world.disk.record
    assert (record.phase, record.max_tries, record.clear_number) == ("done", 3, 1)


def test_a_finished_write_is_returned_by_a_retry_without_a_request(world: Any) -> None:
    done = world.finish(world.write())
    world.service._log.clear()
    assert world.write().advance(world.watch()) == done
    assert world.service.requests == []


def test_a_cleared_finished_write_is_written_again(world: Any) -> None:
    world.finish(world.write())
    world.generation = CLEARED
    world.finish(world.write())
    assert len(world.rows()) == 5


def test_doubt_about_a_finished_write_is_stored_and_outlives_a_clear(world: Any) -> None:
    world.finish(world.write())
    for generation in (PERHAPS, CLEARED):
        world.generation = generation
        with pytest.raises(errors.AmbiguousWriteError, match="can not be applied any more"):
            world.write().advance(world.watch())
        assert world.disk.record.phase == "doubt"
    assert world.requested("append") == 1


def test_data_without_an_answer_is_waited_for_and_adopted(world: Any) -> None:
    world.finish(world.write(at=raising("after put is sent", unanswered())))
    assert world.disk.phases == ["initiated", "done"]
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def test_data_that_never_arrived_is_sent_to_a_new_job_after_the_lease(world: Any) -> None:
    world.service._store.clock = lambda: 0.0  # the service's own clock stands still: the job awaits its data
    first = world.write(at=raising("before put is sent", unanswered()))
    step = first.advance(world.watch())
    lease = world.disk.record.lease
    assert isinstance(step, Wait)
    assert step.watch.deadline == lease
    world.clock.turn_to(lease)
    world.finish(world.write())
    assert world.requested("append") == 2
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def test_a_failure_that_does_not_count_yet_is_waited_out(world: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.write(at=raising("before put is sent", KeyboardInterrupt())).advance(world.watch())
    fail_job(world, world.disk.record.job_id)
    step = world.write().advance(world.watch())
    assert isinstance(step, Wait)
    failed = world.reader.look(step.watch)
    assert failed.verdict is Verdict.FAILED
    lease = world.disk.record.lease
    assert step.watch.outcome(failed, lease - 0.001) is None
    assert step.watch.outcome(failed, lease) is not None


def test_a_failure_of_acknowledged_data_ends_the_wait(world: Any) -> None:
    world.service.hold()
    step = world.write().advance(world.watch())
    fail_job(world, world.disk.record.job_id)
    world.service.release()
    assert isinstance(step, Wait)
    assert world.reader.watch(step.watch).kind == "failed"


def test_data_that_the_store_refuses_leaves_the_job_to_the_next_try(world: Any) -> None:
    with pytest.raises(errors.StorageRefused):
        world.write(at=raising("before put is sent", errors.StorageRefused("no", status=403))).advance(world.watch())
    assert world.disk.record.phase == "initiated"
    world.finish(world.write())
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def test_a_first_status_that_cannot_be_read_does_not_stop_a_write(world: Any) -> None:
    error = unanswered()
    once = world.write(at=raising("before get_job is sent", error))
    with pytest.raises(errors.UnexpectedReply):
        once.advance(world.watch())
    assert (world.disk.record.phase, world.disk.record.seen) == ("sent", "")
    world.finish(world.write())
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def test_a_write_that_is_killed_while_its_data_is_sent_leaves_the_job_to_the_next_try(world: Any) -> None:
    with pytest.raises(errors.Stopped):
        world.write(at=raising("after put is sent", stopped("unknown"))).advance(world.watch())
    assert world.disk.record.phase == "initiated"
    world.finish(world.write())
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]
    assert world.requested("append") == 1


def test_data_that_changes_while_it_is_sent_is_an_error_at_once(world: Any) -> None:
    changed = errors.ValidationFailed("the payload changed while it was sent")
    changed.outcome = "unknown"
    with pytest.raises(errors.ValidationFailed, match="changed"):
        world.write(at=raising("before put is sent", changed)).advance(world.watch())
    assert world.disk.record.phase == "initiated"


def test_a_write_that_is_told_to_stop_sends_no_data(world: Any) -> None:
    with pytest.raises(errors.Stopped):
        world.write(at=raising("before get_job is sent", errors.Stopped("stop"))).advance(world.watch())
    assert world.requested("put_payload") == 0


def test_a_failed_job_that_changed_nothing_is_an_error_and_a_retry_writes_anew(world: Any) -> None:
    with pytest.raises(errors.JobFailed, match=r"^job \w+ failed: ") as failed:
        world.finish(world.write(data=b"id,name\nx,b\n"))
    assert failed.value.job_id == world.disk.record.job_id
    assert world.disk.record.phase == "failed_clean"
    world.finish(world.write())
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def fail_beside_another_writer(world: Any) -> errors.AmbiguousWriteError:
    world.service.hold()
    once = world.write(data=b"id,name\nx,b\n")
    once.advance(world.watch())
    other = world.reader.submit_append(world.table_id, b"id,name\n7,g\n")
    world.service.release()
    world.reader.watch(replace(world.watch(), subject=other)).check()
    with pytest.raises(errors.AmbiguousWriteError) as ambiguous:
        once.advance(world.watch())
    return ambiguous.value


def test_a_failed_job_on_a_table_that_changed_is_ambiguous(world: Any) -> None:
    error = fail_beside_another_writer(world)
    assert not error.may_still_apply
    assert world.disk.record.phase == "sent"


def test_an_ambiguous_write_says_all_that_is_known_and_the_two_ways_on(world: Any) -> None:
    before = world.reader.info(world.table_id).snapshot_id
    text = str(fail_beside_another_writer(world))
    now = world.reader.info(world.table_id).snapshot_id
    for part in (
        f"append on table {world.table_id}",
        f"Job: {world.disk.record.job_id}; phase: sent; last status: FAILED;",
        f"snapshot before: {before} (1 rows), now: {now} (2 rows)",
        "data accepted until: 20",
        "can not be applied any more",
        "The record is in the test's disk.",
        "if it was applied, delete the record and mark the task as success",
        "if it was not, and can not be any more, delete the record and clear the task",
    ):
        assert part in text


def test_an_ambiguous_write_carries_what_its_text_says(world: Any) -> None:
    before = world.reader.info(world.table_id)
    error = fail_beside_another_writer(world)
    now, record = world.reader.info(world.table_id), world.disk.record
    assert (error.table_id, error.job_id, error.phase, error.status) == (
        world.table_id,
        record.job_id,
        "sent",
        "FAILED",
    )
    assert (error.snapshot_before, error.rows_before) == (before.snapshot_id, 1)
    assert (error.snapshot_now, error.rows_now) == (now.snapshot_id, 2)
    assert error.accepted_until == record.lease


def test_a_failed_job_is_clean_where_the_connection_says_that_failures_are_atomic(world: Any) -> None:
    world.policy = Policy(failed_jobs_are_atomic=True, lease_margin=5)
    world.service.hold()
    once = world.write(data=b"id,name\nx,b\n")
    once.advance(world.watch())
    world.reader.submit_append(world.table_id, b"id,name\n7,g\n")
    world.service.release()
    with pytest.raises(errors.JobFailed):
        world.finish(once)


def lose_job(world: Any) -> None:
    world.service.forget(world.disk.record.job_id)


def test_a_job_that_is_gone_is_ambiguous_after_the_lease_only(world: Any) -> None:
    world.finish(world.write())
    world.disk.text = world.disk.text.replace('"done"', '"initiated"')
    lose_job(world)
    step = world.write().advance(world.watch())
    assert isinstance(step, Wait)
    assert step.watch.deadline == world.disk.record.lease
    world.clock.turn_to(world.disk.record.lease)
    with pytest.raises(errors.AmbiguousWriteError, match=r"last status: none.* may still be applied"):
        world.write().advance(world.watch())


def test_a_job_that_is_gone_from_a_table_as_it_was_is_written_anew_where_only_finished_jobs_vanish(world: Any) -> None:
    world.policy = Policy(only_finished_jobs_vanish=True, lease_margin=5)
    with pytest.raises(KeyboardInterrupt):
        world.write(at=raising("before put is sent", KeyboardInterrupt())).advance(world.watch())
    world.clock.turn_to(world.disk.record.lease)
    gone = raising("before get_job is sent", errors.JobNotFound("gone", status=404))
    assert isinstance(world.write(at=gone).advance(world.watch()), Wait)
    assert world.requested("append") == 2
    world.finish(world.write())
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def test_a_job_that_is_said_to_be_gone_for_good_is_as_unknown_as_one_that_is_not_found(world: Any) -> None:
    world.finish(world.write())
    world.disk.text = world.disk.text.replace('"done"', '"sent"')
    gone = raising("before get_job is sent", errors.Refused("gone", status=410))
    assert isinstance(world.write(at=gone).advance(world.watch()), Wait)


def test_a_job_that_may_not_be_read_is_an_error_and_no_proof(world: Any) -> None:
    world.service.hold()
    world.write().advance(world.watch())
    world.service.release()
    forbidden = raising("before get_job is sent", errors.Forbidden("no", status=403))
    with pytest.raises(errors.Forbidden):
        world.write(at=forbidden).advance(world.watch())


def test_an_ambiguous_write_on_a_table_that_cannot_be_read_says_so(world: Any) -> None:
    world.finish(world.write())
    world.generation = PERHAPS
    unreadable = raising("before info is sent", errors.Forbidden("not yours", status=403))
    with pytest.raises(errors.AmbiguousWriteError, match=r"now: unknown \(not yours\)"):
        world.write(at=unreadable).advance(world.watch())


def test_a_wait_ends_at_the_deadline_and_says_that_the_job_goes_on(world: Any) -> None:
    world.service.hold()
    watch = world.watch(50)
    once = world.write()
    step = once.advance(watch)
    assert isinstance(step, Wait)
    assert step.watch.deadline == watch.deadline
    world.clock.turn_to(watch.deadline)
    with pytest.raises(errors.WaitTimedOut, match="is QUEUED after 50 s; it goes on") as ended:
        once.advance(watch)
    world.service.release()
    assert ended.value.job_id == world.disk.record.job_id


# ---- what a person has decided beforehand


def test_a_write_in_doubt_that_is_assumed_to_be_done_is_stored_as_done(world: Any) -> None:
    world.finish(world.write())
    world.disk.text = world.disk.text.replace('"done"', '"sent"')
    lose_job(world)
    world.clock.turn_to(world.disk.record.lease)
    assert isinstance(world.finish(world.write(choices=Choices(on_unknown="assume_done"))), Done)
    assert world.disk.record.phase == "done"
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


def test_a_write_in_doubt_is_written_again_after_the_lease_where_a_person_accepts_doubled_rows(world: Any) -> None:
    world.finish(world.write())
    world.disk.text = world.disk.text.replace('"done"', '"sent"')
    lose_job(world)
    world.clock.turn_to(world.disk.record.lease)
    world.finish(world.write(choices=Choices(on_unknown="resubmit")))
    assert world.settled_rows(5) == ["1,a", "2,b", "2,b", "3,c", "3,c"]
    assert world.disk.phases[-3:] == ["initiated", "sent", "done"]


def test_a_cleared_write_that_resumes_is_adopted_in_the_generation_of_the_clear(world: Any) -> None:
    world.finish(world.write())
    world.generation = CLEARED
    world.finish(world.write(choices=Choices(on_clear="resume")))
    assert (world.disk.record.phase, world.disk.record.max_tries) == ("done", 3)
    assert world.requested("append") == 1


def test_a_cleared_write_that_is_renewed_waits_for_the_earlier_one(world: Any) -> None:
    world.service.hold()
    world.write().advance(world.watch())
    world.generation = CLEARED
    renewed = world.write(data=NEW_DATA, choices=Choices(on_clear="new"))
    assert isinstance(renewed.advance(world.watch()), Wait)
    assert world.requested("append") == 1
    world.service.release()
    world.finish(renewed)
    assert world.settled_rows(4) == ["1,a", "2,b", "3,c", "8,h"]


def test_a_truncation_in_doubt_that_is_assumed_to_be_done_is_stored_as_done(world: Any) -> None:
    lost = raising("before truncate is sent", unanswered())
    watch = world.watch(50)
    once = world.truncation(at=lost, choices=Choices(on_unknown="assume_done"))
    assert isinstance(once.advance(watch), Wait)
    world.clock.turn_to(watch.deadline)
    assert once.advance(watch) == Done("")
    assert world.disk.record.phase == "done"


# ---- other content after a clear


def interrupted(world: Any, where: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.write(at=raising(where, KeyboardInterrupt())).advance(world.watch())
    world.generation = CLEARED


def test_other_content_after_a_clear_is_written_once_the_old_job_can_get_no_data(world: Any) -> None:
    interrupted(world, "before put is sent")
    world.finish(world.write(data=NEW_DATA))
    assert world.settled_rows(2) == ["1,a", "8,h"]


def test_other_content_after_a_clear_is_written_once_the_old_job_failed(world: Any) -> None:
    world.service.hold()
    world.write().advance(world.watch())
    fail_job(world, world.disk.record.job_id)
    world.service.release()
    world.generation = CLEARED
    world.finish(world.write(data=NEW_DATA))
    assert world.settled_rows(2) == ["1,a", "8,h"]


def test_other_content_after_a_clear_is_not_written_beside_the_old_one(world: Any) -> None:
    interrupted(world, "after put is sent")
    with pytest.raises(errors.AmbiguousWriteError, match="the earlier content was written; the new one was not"):
        world.finish(world.write(data=NEW_DATA))
    assert world.settled_rows(3) == ["1,a", "2,b", "3,c"]


# ---- a truncation


def test_a_truncation_is_recorded_before_it_is_sent_and_done_once_it_is_seen(world: Any) -> None:
    assert world.finish(world.truncation()) == Done("")
    assert world.disk.phases == ["intent", "sent", "done"]
    assert world.rows() == []


def test_a_table_without_rows_is_left_alone(worlds: Any) -> None:
    world = worlds(b"")
    assert world.finish(world.truncation()) == Done("")
    assert world.disk.phases == ["done"]
    assert world.requested("truncate") == 0


def test_a_table_without_rows_is_truncated_where_that_is_forced(worlds: Any) -> None:
    world = worlds(b"")
    assert world.finish(world.truncation(force=True)) == Done("")
    assert world.finish(world.truncation(force=True)) == Done("")
    assert world.requested("truncate") == 1


def test_a_finished_truncation_is_not_sent_again_by_a_retry(world: Any) -> None:
    world.finish(world.truncation())
    world.service._log.clear()
    assert world.truncation().advance(world.watch()) == Done("")
    assert world.service.requests == []


def test_a_truncation_without_an_answer_is_watched_and_not_sent_again(world: Any) -> None:
    world.finish(world.truncation(at=raising("after truncate is sent", unanswered())))
    assert world.requested("truncate") == 1
    assert world.disk.phases == ["intent", "done"]


def test_a_truncation_that_was_refused_leaves_no_intent_behind(world: Any) -> None:
    refused = raising("before truncate is sent", errors.Forbidden("no", status=403))
    with pytest.raises(errors.Forbidden):
        world.truncation(at=refused).advance(world.watch())
    assert world.disk.record.phase == "failed_clean"
    world.finish(world.truncation())
    assert world.rows() == []


def test_a_truncation_whose_request_nobody_knows_of_is_ambiguous_at_the_deadline(world: Any) -> None:
    lost = raising("before truncate is sent", unanswered())
    watch = world.watch(50)
    once = world.truncation(at=lost)
    assert isinstance(once.advance(watch), Wait)
    world.clock.turn_to(watch.deadline)
    with pytest.raises(errors.AmbiguousWriteError, match=r"Job: none; phase: intent.*unknown.* may still be applied"):
        once.advance(watch)


def test_a_truncation_that_takes_no_effect_times_out_and_names_the_way_to_send_another(world: Any) -> None:
    world.service.hold()
    watch = world.watch(50)
    once = world.truncation()
    step = once.advance(watch)
    assert isinstance(step, Wait)
    assert (step.watch.kind, step.watch.subject) == ("truncation", world.table_id)
    world.clock.turn_to(watch.deadline)
    with pytest.raises(
        errors.WaitTimedOut, match=r"still has 1 rows after 50 s.* delete the record in the test's disk"
    ):
        once.advance(watch)
    world.service.release()


def test_a_finished_truncation_that_was_perhaps_cleared_is_ambiguous(world: Any) -> None:
    world.finish(world.truncation())
    world.generation = PERHAPS
    with pytest.raises(errors.AmbiguousWriteError, match="truncate was done at"):
        world.truncation().advance(world.watch())


def test_a_truncation_does_not_take_another_tables_record_for_its_own(world: Any) -> None:
    world.service.hold()
    world.truncation().advance(world.watch())
    world.service.release()
    with pytest.raises(errors.DifferentWrite):
        world.truncation(identity="other").advance(world.watch())


def test_a_table_that_does_not_tell_its_rows_is_not_truncated(world: Any) -> None:
    job_id = world.reader.submit_append(world.table_id, NEW_DATA)
    wire = Wire.model_validate({"info": "GET /data/jobs/{table_id}"})  # answers without a row_count
    with TableClient(world.service.url, token=world.service.token, wire=wire) as client:
        attempt = Attempt(client, MemoryStore(), Generation(1, 0), logging.getLogger())
        once = TruncateOnce(attempt, table_id=job_id, identity="this")
        with pytest.raises(errors.UnexpectedReply, match="row_count is missing"):
            once.advance(world.watch())
    assert world.requested("truncate") == 0


# ---- a deletion


def test_a_deletion_is_recorded_before_it_is_sent_and_done_once_it_is_answered(world: Any) -> None:
    assert world.finish(world.deletion()) == Done("")
    assert world.disk.phases == ["intent", "sent", "done"]
    assert world.rows() == []


def test_a_finished_deletion_is_not_sent_again_by_a_retry(world: Any) -> None:
    world.finish(world.deletion())
    world.service._log.clear()
    assert world.finish(world.deletion()) == Done("")
    assert world.service.requests == []


def test_a_cleared_deletion_is_sent_again(world: Any) -> None:
    world.finish(world.deletion())
    world.generation = CLEARED
    world.finish(world.deletion())
    assert world.requested("delete_rows") == 2


def test_a_deletion_without_an_answer_is_ambiguous_for_this_try_and_the_next(world: Any) -> None:
    for at in (raising("after delete_rows is sent", unanswered()), ignore):
        with pytest.raises(errors.AmbiguousWriteError, match=r"delete_rows on table .* may still be applied"):
            world.finish(world.deletion(at=at))
    assert world.requested("delete_rows") == 1


def stopped(outcome: errors.Outcome) -> errors.Stopped:
    """Give what ends the work of a killed task."""
    error = errors.Stopped("told to stop")
    error.outcome = outcome
    return error


def test_a_deletion_that_is_killed_before_it_is_sent_is_sent_by_the_next_try(world: Any) -> None:
    with pytest.raises(errors.Stopped):
        world.finish(world.deletion(at=raising("before delete_rows is sent", stopped("not_sent"))))
    assert world.disk.record.phase == "failed_clean"
    world.finish(world.deletion())
    assert world.rows() == []


def test_a_deletion_that_is_killed_while_it_is_under_way_is_not_sent_again(world: Any) -> None:
    with pytest.raises(errors.Stopped):
        world.finish(world.deletion(at=raising("after delete_rows is sent", stopped("unknown"))))
    assert world.disk.record.phase == "intent"
    with pytest.raises(errors.AmbiguousWriteError):
        world.finish(world.deletion())
    assert world.requested("delete_rows") == 1


def test_a_truncation_that_is_killed_while_it_is_under_way_is_seen_by_the_next_try(world: Any) -> None:
    with pytest.raises(errors.Stopped):
        world.finish(world.truncation(at=raising("after truncate is sent", stopped("unknown"))))
    assert world.finish(world.truncation()) == Done("")
    assert world.requested("truncate") == 1


@pytest.mark.parametrize("choices", [Choices(on_unknown="resubmit"), Choices(on_clear="new")])
def test_a_deletion_without_an_answer_is_never_sent_again(world: Any, choices: Choices) -> None:
    with pytest.raises(KeyboardInterrupt):
        world.finish(world.deletion(at=raising("before delete_rows is sent", KeyboardInterrupt())))
    world.generation = CLEARED
    with pytest.raises(errors.AmbiguousWriteError):
        world.finish(world.deletion(choices=choices))
    assert world.requested("delete_rows") == 0


def test_a_deletion_without_an_answer_is_done_where_a_person_says_so_beforehand(world: Any) -> None:
    lost = raising("after delete_rows is sent", unanswered())
    assert world.finish(world.deletion(at=lost, choices=Choices(on_unknown="assume_done"))) == Done("")
    assert world.disk.phases == ["intent", "done"]


@pytest.mark.parametrize("filters", [[], "id:like:1", "nothing:eq:1"])
def test_a_deletion_that_was_refused_leaves_no_intent_behind(world: Any, filters: Any) -> None:
    with pytest.raises(errors.ValidationFailed):
        world.finish(world.deletion(filters=filters))
    assert world.disk.record.phase == "failed_clean"
    world.finish(world.deletion())
    assert world.rows() == []


# ---- a query


def test_a_query_is_begun_and_finished_once(world: Any) -> None:
    query = world.query()
    assert not query.is_begun()
    done = world.finish(query)
    assert query.is_begun()
    assert not query.is_finished()
    query.finish()
    assert query.is_finished()
    assert world.query().advance(world.watch()) == done
    assert world.requested("start_query") == 1


def test_a_retry_goes_on_with_the_query_of_an_earlier_try(world: Any) -> None:
    first = world.finish(world.query())
    assert world.finish(world.query()) == first
    assert world.requested("start_query") == 1


@pytest.mark.parametrize("generation", [CLEARED, PERHAPS])
def test_a_clear_starts_another_query(world: Any, generation: Generation) -> None:
    world.finish(world.query())
    world.generation = generation
    assert not world.query().is_begun()
    world.finish(world.query())
    assert world.requested("start_query") == 2


def test_another_query_than_the_recorded_one_is_started_anew(world: Any) -> None:
    world.finish(world.query())
    world.finish(world.query(identity="other"))
    assert world.requested("start_query") == 2


def test_a_failed_query_is_an_error_and_a_retry_starts_another(world: Any) -> None:
    world.service.hold()
    query = world.query()
    query.advance(world.watch())
    fail_job(world, world.disk.record.job_id)
    with pytest.raises(errors.JobFailed, match="out of luck"):
        query.advance(world.watch())
    assert world.disk.record.phase == "failed_clean"
    world.service.release()
    world.finish(world.query())
    assert world.requested("start_query") == 2


def test_a_query_that_is_gone_is_started_anew(world: Any) -> None:
    world.finish(world.query())
    lose_job(world)
    world.finish(world.query())
    assert world.requested("start_query") == 2


def test_a_query_that_is_unknown_right_after_its_start_is_an_error(world: Any) -> None:
    gone = raising("before poll_query is sent", errors.JobNotFound("gone", status=404))
    with pytest.raises(errors.JobNotFound):
        world.query(at=gone).advance(world.watch())


def test_a_query_that_may_not_be_read_is_an_error(world: Any) -> None:
    world.finish(world.query())
    forbidden = raising("before poll_query is sent", errors.Forbidden("no", status=403))
    with pytest.raises(errors.Forbidden):
        world.query(at=forbidden).advance(world.watch())
    assert world.requested("start_query") == 1


def test_a_query_that_takes_too_long_times_out_and_goes_on(world: Any) -> None:
    world.service.hold()
    watch = world.watch(50)
    query = world.query()
    step = query.advance(watch)
    assert isinstance(step, Wait)
    assert step.watch.kind == "query"
    world.clock.turn_to(watch.deadline)
    with pytest.raises(errors.WaitTimedOut):
        query.advance(watch)
    world.service.release()
    assert world.disk.record.phase == "sent"


def test_a_superseded_try_cannot_say_that_its_result_was_kept(world: Any, fenced: type[Exception]) -> None:
    query = world.query()
    world.finish(query)
    world.disk.owner = object()
    with pytest.raises(fenced):
        query.finish()
