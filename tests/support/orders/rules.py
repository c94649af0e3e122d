"""What can be taken away: each rule of the protocol, and each assumption, with the law that falls without it.

A rule of deciding is taken away by wrapping the provider's own function, a rule of order by a flag of `Order`.
Some stand in for each other, so that only both together are missed: the row says so in `given`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from airflow_tds.durability.decisions import (
    Adopt,
    Ambiguous,
    Attach,
    Attached,
    Choices,
    Policy,
    Start,
    begin,
    weigh,
)
from airflow_tds.durability.records import Generation, Record
from orders.search import Found, search
from orders.tries import Decision, Order
from orders.world import Budget, Service

__all__ = ["ASSUMPTIONS", "LARGE_WORLDS", "RULES", "WORLDS", "Case"]

TWICE = "rows are applied twice"
DESTROYS = "a late write destroys another writer's rows"
OLDER = "an older write replaces a newer one"
MISSING = "success is recorded, and the rows are not there"
OTHER = "success is recorded for other content than the clear asked for"

SMALL = Budget(clears=0)
ATOMIC = Policy(failed_jobs_are_atomic=True)
SUSPECT = Policy(failed_jobs_are_atomic=False)
VANISH = Policy(only_finished_jobs_vanish=True)


@dataclass(frozen=True)
class Case:
    """One search.

    Attributes:
        name: What is tried, or taken away.
        law: The law that falls; empty where none must.
        order: What tries do.
        service: What is assumed.
        budget: The bounds.
        given: What else must not hold, as it would stand in.
        rash: Whether people write again although the error says that the first may still be applied.
    """

    name: str
    law: str = ""
    order: Order = Order()  # noqa: RUF009  # frozen
    service: Service = Service()  # noqa: RUF009  # frozen
    budget: Budget = SMALL
    given: str = ""
    rash: bool = False

    def search(self) -> Found:
        return search(self.order, self.service, self.budget, rash=self.rash)


# ---- rules of deciding, taken away


def never_reads(record: Record | None, *asked: Any) -> Decision:
    return begin(None, *asked)


def writes_done_again(record: Record | None, *asked: Any) -> Decision:
    step = begin(record, *asked)
    return Start("") if isinstance(step, Adopt) and record is not None and record.phase == "done" else step


def hears_no_clear(record: Record | None, generation: Generation, *asked: Any) -> Decision:
    known = Generation(record.max_tries, record.clear_number) if record else generation
    return begin(record, known, *asked)


def writes_unfinished_again(record: Record | None, generation: Generation, *asked: Any) -> Decision:
    step = begin(record, generation, *asked)
    cleared = record is not None and generation.since(record) == "cleared"
    return Start("") if isinstance(step, Attach) and cleared else step


def knows_max_tries_only(record: Record | None, generation: Generation, *asked: Any) -> Decision:
    number = record.clear_number if record else generation.clear_number
    return begin(record, replace(generation, clear_number=number), *asked)


def knows_clear_number_only(record: Record | None, generation: Generation, *asked: Any) -> Decision:
    if record is None:
        return begin(record, generation, *asked)
    cleared = generation.clear_number != record.clear_number
    return begin(record, replace(generation, max_tries=record.max_tries + cleared), *asked)


def sees_no_content(
    record: Record | None, generation: Generation, identity: str, content: str, *asked: Any
) -> Decision:
    return begin(record, generation, identity, "", *asked)


def does_not_settle(record: Record | None, *asked: Any) -> Decision:
    step = begin(record, *asked)
    if isinstance(step, Attach) and step.settle:
        return Ambiguous("other content", may_still_apply=False)
    return step


def does_not_wait_for_the_earlier(record: Record | None, *asked: Any) -> Decision:
    step = begin(record, *asked)
    return Start("") if isinstance(step, Attach) and step.renew else step


def sends_again_without_an_answer(record: Record | None, *asked: Any) -> Decision:
    step = begin(record, *asked)
    unanswered = record is not None and record.phase in ("intent", "committing")
    return Start("") if unanswered and isinstance(step, Ambiguous) else step


def has_no_lease(record: Record, read: Attached, **known: Any) -> Decision:
    return weigh(record, replace(read, now=record.lease), **known)


def believes_every_failure(record: Record, read: Attached, **known: Any) -> Decision:
    return weigh(record, replace(read, unchanged=True), **known)


def believes_failure_at_once(record: Record, read: Attached, **known: Any) -> Decision:
    failed = read.job is not None and read.job.status == "FAILED"
    return weigh(record, replace(read, now=record.lease) if failed else read, **known)


def believes_the_first_status(record: Record, read: Attached, **known: Any) -> Decision:
    return weigh(record, read, **(known | {"no_data_statuses": (record.seen,)}))


def believes_no_data_of_what_was_sent(record: Record, read: Attached, **known: Any) -> Decision:
    without = replace(record, phase="initiated") if read.now >= record.lease else record
    return weigh(without, read, **known)


def believes_unknown_jobs(record: Record, read: Attached, **known: Any) -> Decision:
    if read.job is None and read.now >= record.lease and read.unchanged:
        return Start("", clean=True)
    return weigh(record, read, **known)


def resubmits_whatever(record: Record, read: Attached, **known: Any) -> Decision:
    return weigh(replace(record, op="append"), read, **known)


RESUBMIT = Choices(on_unknown="resubmit")
COMMIT, OVERWRITE = Order(strategy="put_commit"), Order(op="overwrite")
DIRECT, DELETE = Order(strategy="direct"), Order(op="delete_rows", strategy="request")
BESIDE = Budget(clears=0, others=1)
UNTOLD, LATE = Service(tells=False), Service(a6=False)

RULES = (
    Case("1: the record is read first", TWICE, Order(begin=never_reads)),
    Case("1: the job is stored before its data is sent", TWICE, Order(stored_before_sent=False)),
    Case("1: a set that fails ends the try", TWICE, Order(failed_set_ends=False)),
    Case("1: the store refuses a stale try", TWICE, Order(fence=False)),
    Case("2: what is done is not written again by a retry", TWICE, Order(begin=writes_done_again)),
    Case(
        "2: what is done is written again after a clear", MISSING, Order(begin=hears_no_clear), budget=Budget(tries=0)
    ),
    Case(
        "2: a clear goes on with what is unfinished",
        TWICE,
        Order(begin=writes_unfinished_again),
        budget=Budget(tries=0),
    ),
    Case(
        "3: another clear number means perhaps cleared",
        MISSING,
        Order(begin=knows_max_tries_only),
        budget=Budget(tries=0, clears=0, kept=1),
    ),
    Case(
        "3: another clear number means perhaps only",
        TWICE,
        Order(begin=knows_clear_number_only),
        budget=Budget(clears=0, other_clears=1),
    ),
    Case(
        "3: every set writes the generation of its own try", TWICE, Order(own_generation=False), budget=Budget(tries=1)
    ),
    Case(
        "4: a failure is judged",
        TWICE,
        Order(weigh=believes_every_failure),
        Service(a2=False),
        given="A2, which an append does not rely on",
    ),
    Case("5: lease", TWICE, Order(weigh=has_no_lease)),
    Case("5: lease, overwrite", DESTROYS, replace(OVERWRITE, weigh=has_no_lease), budget=BESIDE),
    Case("5: the clock is read before the job", TWICE, Order(clock_first=False)),
    Case(
        "5: a failure before the lease's end does not count",
        TWICE,
        Order(weigh=believes_failure_at_once),
        Service(a7=False),
        given="A7",
    ),
    Case(
        "5: the status of before the data proves nothing",
        TWICE,
        Order(weigh=believes_the_first_status, no_data=()),
        UNTOLD,
    ),
    Case(
        "5: data that was acknowledged and is denied is doubt",
        TWICE,
        Order(weigh=believes_no_data_of_what_was_sent),
        LATE,
        given="A6",
    ),
    Case("5: an unknown job proves nothing", TWICE, Order(weigh=believes_unknown_jobs), Service(forgets="any")),
    Case(
        "5: overwrite is never resubmitted beside a job that may still apply",
        OLDER,
        replace(OVERWRITE, choices=RESUBMIT, weigh=resubmits_whatever, no_data=()),
        UNTOLD,
        BESIDE,
    ),
    Case(
        "5: on_clear=new waits for the earlier job",
        OLDER,
        replace(OVERWRITE, choices=Choices(on_clear="new"), begin=does_not_wait_for_the_earlier),
        budget=Budget(tries=0),
    ),
    Case("6: content is compared", OTHER, Order(begin=sees_no_content), budget=Budget(tries=0, changes=1)),
    Case(
        "6: other content settles the earlier job first",
        TWICE,
        Order(begin=does_not_settle),
        budget=Budget(tries=0, changes=1, persons=1),
    ),
    Case("7: the phase is stored before the commit", TWICE, replace(COMMIT, stored_before_sent=False)),
    Case("7: the phase is stored before a direct write", TWICE, replace(DIRECT, stored_before_sent=False)),
    Case(
        "7: the phase is stored before a deletion", DESTROYS, replace(DELETE, stored_before_sent=False), budget=BESIDE
    ),
    Case("7: a request without an answer stays ambiguous", TWICE, replace(COMMIT, begin=sends_again_without_an_answer)),
    Case(
        "7: a deletion without an answer stays ambiguous",
        DESTROYS,
        replace(DELETE, begin=sends_again_without_an_answer),
        budget=BESIDE,
    ),
    Case("7: an unknown answer keeps the phase", TWICE, replace(COMMIT, unknown_keeps_phase=False)),
    Case(
        "7: a refusal does not bring an earlier done back",
        MISSING,
        replace(COMMIT, refused_is_clean=False),
        budget=Budget(tries=1),
    ),
    Case(
        "10: doubt about what is done is stored",
        TWICE,
        Order(doubt_is_stored=False),
        budget=Budget(tries=1, other_clears=1, stale=0),
    ),
    Case(
        "10: nobody writes again while the first may still be applied",
        TWICE,
        Order(no_data=()),
        UNTOLD,
        Budget(clears=0, persons=1),
        rash=True,
    ),
    Case(
        "10: nor after a commit without an answer",
        TWICE,
        COMMIT,
        budget=Budget(clears=0, persons=1),
        rash=True,
    ),
)

ASSUMPTIONS = (
    Case("A1: a job whose data never came changes nothing", TWICE, service=Service(a1=False)),
    Case("A1, overwrite", DESTROYS, OVERWRITE, Service(a1=False), BESIDE),
    Case(
        "A2: a FAILED job changed nothing, where the connection says so", TWICE, Order(policy=ATOMIC), Service(a2=False)
    ),
    Case("A2, overwrite", DESTROYS, OVERWRITE, Service(a2=False), BESIDE),
    Case(
        "only finished jobs vanish, where the connection says so", TWICE, Order(policy=VANISH), Service(forgets="any")
    ),
    Case("A3: after the lease no data lands", TWICE, service=Service(a3=False)),
    Case("A3, overwrite", DESTROYS, OVERWRITE, Service(a3=False), BESIDE),
    Case("A4: a job applies its data at most once", TWICE, service=Service(a4=False)),
    Case("A4, overwrite", DESTROYS, OVERWRITE, Service(a4=False), BESIDE),
    Case(
        "A5: a write that changes the table changes its snapshot",
        TWICE,
        service=Service(a5=False, a2=False),
        given="A2, in whose place the snapshot judges",
    ),
    Case("A6: a job that has data is not shown as one without after the lease", TWICE, service=LATE),
    Case("A6, overwrite", DESTROYS, OVERWRITE, LATE, BESIDE),
    Case(
        "A7: a job that FAILED for want of data stays FAILED",
        TWICE,
        Order(weigh=believes_failure_at_once),
        Service(a7=False),
        given="rule 5, which waits for the lease's end",
    ),
    Case(
        "A8: every clear raises the DAG run's clear number",
        MISSING,
        service=Service(a8=False),
        budget=Budget(tries=0, clears=0, kept=1),
    ),
)

RETRY = Budget(tries=1, clears=1)
BUDGETS = {
    "a retry and a clear": RETRY,
    "two clears": Budget(tries=0, clears=2),
    "a clear, and one of another task": Budget(tries=1, clears=1, other_clears=1, stale=0),
    "a clear, and one that keeps max_tries": Budget(tries=0, clears=1, kept=1),
    "another writer": Budget(tries=1, clears=0, others=1),
    "two paused workers": Budget(tries=2, clears=0, stale=2),
}
SOURCES = {
    "a clear and another source": Budget(tries=1, clears=1, changes=1, stale=0),
    "a person who follows the text": Budget(tries=0, clears=1, persons=1, changes=1),
}
TIGHT = Budget(tries=0, clears=1, others=1, persons=1, stale=0)
#: For the command only: all at once.
LARGE = {
    "everything, no paused worker": Budget(
        tries=1, clears=2, kept=1, others=1, other_clears=1, changes=1, persons=1, stale=0
    ),
    "everything but other writers": Budget(tries=1, clears=1, kept=1, other_clears=1, changes=1, persons=1),
    "retries, clears, paused workers, another writer": Budget(tries=2, clears=2, others=1, stale=2),
}
CHOICES = {
    "on_clear=resume": Choices(on_clear="resume"),
    "on_clear=new": Choices(on_clear="new"),
    "on_unknown=resubmit": RESUBMIT,
    "on_unknown=assume_done": Choices(on_unknown="assume_done"),
    "new and resubmit": Choices(on_clear="new", on_unknown="resubmit"),
}
STRATEGIES = {"initiate_put": "", "put_commit": ", put_commit", "direct": ", direct"}


def _worlds(budgets: dict[str, Budget]) -> tuple[Case, ...]:
    """Give each operation by each strategy within bounds, in which no law must fall."""
    cases = [Case(f"delete_rows: {name}", "", DELETE, budget=replace(b, changes=0)) for name, b in budgets.items()]
    for op in ("append", "overwrite"):
        for strategy, suffix in STRATEGIES.items():
            order = Order(op=op, strategy=strategy)
            cases += [Case(f"{op}{suffix}: {name}", "", order, budget=budget) for name, budget in budgets.items()]
    return tuple(cases)


def _choices() -> tuple[Case, ...]:
    """Give each choice that a person may have made beforehand."""
    return tuple(
        Case(f"{op}{suffix}: {name}", "", Order(op=op, strategy=strategy, choices=choices), budget=RETRY)
        for op in ("append", "overwrite")
        for strategy, suffix in STRATEGIES.items()
        for name, choices in CHOICES.items()
    )


def _services() -> tuple[Case, ...]:
    """Give the services that keep less than all assumptions, on which it holds as well."""
    cases = []
    for op in ("append", "overwrite"):
        plain, untold = Order(op=op), Order(op=op, no_data=())
        suspect, again = replace(plain, policy=SUSPECT), replace(untold, choices=RESUBMIT)
        vanish = replace(plain, policy=VANISH)
        for name, order, service in (
            ("no status tells that no data has arrived", untold, UNTOLD),
            ("no status tells that no data has arrived, and resubmit", again, UNTOLD),
            ("ended jobs are forgotten", plain, Service(forgets="ended")),
            ("any job may be forgotten", plain, Service(forgets="any")),
            ("ended jobs are forgotten, and the connection says so", vanish, Service(forgets="ended")),
            ("data is noticed late, within the margin of the lease", plain, Service(prompt=False)),
            ("A2 not kept, and the snapshot judges", suspect, Service(a2=False)),
            ("A5 not kept, and failed jobs changed nothing", plain, Service(a5=False)),
            ("A7 not kept", plain, Service(a7=False)),
        ):
            cases.append(Case(f"{op}: {name}", "", order, service, TIGHT))
    return tuple(cases)


WORLDS = (*_worlds(BUDGETS | SOURCES), *_choices(), *_services())
LARGE_WORLDS = _worlds(LARGE)
