"""What a job says that has no data, and how soon one with data is noticed: the proof that a durable write rests on.

A write whose worker died is started anew only where its job certainly has no data. So a status is proposed for the
wire map's `no_data_statuses` only if no job was ever seen with it once its data had been acknowledged, and if what
such a job says instead was seen as well.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Lesson", "Seen", "lesson"]

#: The interface's final words; no other status is.
_FINAL = ("COMPLETED", "FAILED")


@dataclass(frozen=True)
class Seen:
    """One reading of a job.

    Attributes:
        after: Seconds since its data was acknowledged.
        status: Its status.
    """

    after: float
    status: str


@dataclass(frozen=True)
class Lesson:
    """What the readings teach.

    Attributes:
        status: What a job without data says, and none with data; empty where that is not proven.
        delay: Seconds until data was noticed, at most.
        text: One sentence.
    """

    status: str
    delay: float
    text: str


def lesson(idle: Collection[str], jobs: Mapping[str, Sequence[Seen]]) -> Lesson:
    """Learn from readings.

    Args:
        idle: Every status of a job that got no data, over the whole time.
        jobs: The readings of jobs that got data, from its acknowledgement to their end.

    Returns:
        What they teach, and why not more.
    """
    words = sorted(set(idle))
    if len(words) != 1 or words[0] in _FINAL:
        return Lesson("", 0.0, f"a job without data is {' and then '.join(words) or 'not seen'}: nothing is learned")
    word = words[0]
    delay = max((_noticed(word, seen) for seen in jobs.values()), default=0.0)
    others = {one.status for seen in jobs.values() for one in seen} - set(_FINAL)
    if word in others:
        return Lesson(
            "", delay, f"a job is {word} without data, and with data too for {delay:.1f} s: it proves nothing"
        )
    if not others:
        text = f"a job without data is {word}; none with data was seen before it was final, so that proves nothing"
        return Lesson("", delay, text)
    known = ", ".join(sorted(others))
    return Lesson(word, delay, f"a job without data is {word}, one with data {known}; data is noticed at once")


def _noticed(idle: str, seen: Sequence[Seen]) -> float:
    """Say when a job was first seen to have noticed its data: after the last reading that says that it has none."""
    still = [one.after for one in seen if one.status == idle]
    if not still:
        return 0.0
    return min((one.after for one in seen if one.after > max(still)), default=max(still))
