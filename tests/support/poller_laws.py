"""The eleven laws of the poller, and what its source looks like without each of them.

A removal replaces texts that stand in `airflow_tds/polling.py` exactly once. Without a law, a test whose name begins
with `test_law_<number>_` fails; tests/proofs/laws.py shows it. It changes with the poller's source.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["LAWS", "SOURCE", "Law", "without"]

SOURCE = Path("airflow_tds") / "polling.py"
#: What stands in the source, and what stands there instead.
Removal = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Law:
    """One law: its number, its words, and the ways in which the source can lack it."""

    number: int
    words: str
    removals: tuple[Removal, ...]

    @property
    def tests(self) -> str:
        """Name the tests that fall without it, for pytest's `-k`."""
        return f"test_law_{self.number}_"


def without(source: str, removal: Removal) -> str:
    """Take a law out of the source.

    Raises:
        ValueError: A text does not stand there exactly once: the table is older than the source.
    """
    for before, after in removal:
        if source.count(before) != 1:
            raise ValueError(f"{source.count(before)} times in {SOURCE}: {before!r}")
        source = source.replace(before, after)
    return source


_READ = "        reply = await self._lanes[number].read(entry.request, entry.kept)\n"
_OWNED = (
    "        request = self._loop.create_task(self._lanes[number].read(entry.request, entry.kept))\n"
    "        vars(self).setdefault('owned', {})[entry] = request\n"
    "        reply = await request\n"
)
_LEFT = "        entry.subscriptions.discard(subscription)\n"
_CANCEL = "        if entry in vars(self).get('owned', {}):\n            vars(self)['owned'][entry].cancel()\n"
_IMPATIENT = "        elif entry.turn is not None and now + watch.pause(time.time()) < entry.due:\n"
_LAST = "        if not self._entries:\n            self.keep()\n"
_REARM = "has the connection that is still open\n        self._arm()\n"
_OWN_ERROR = "subscription.wake(error and errors.rebuild(type(error).__name__, str(error)))"
_GATE = "while self._due and max(self._due[0][0], self._gate) <= self._loop.time():"
_SPREAD = "self._gate = max(self._gate, self._loop.time() + pause * random.uniform(1, 1 + SPREAD))"

LAWS = (
    Law(1, "a trigger owns no request and cancels none", (((_READ, _OWNED), (_LEFT, _LEFT + _CANCEL)),)),
    Law(
        2,
        "only what is idle is queued, and once",
        (
            ((_IMPATIENT, "        else:\n            self._push(entry, now)\n        if False:\n"),),
            (("            if entry.turn == turn:\n", "            if True:\n"),),
        ),
    ),
    Law(
        3,
        "a poller closes itself, a while after its last subscriber",
        (
            ((_LAST, "        if not self._entries:\n            self._close()\n"),),
            ((" self._loop.call_later(LINGER, self._close, context=Context())", " None"),),
        ),
    ),
    Law(
        4,
        "whoever leaves early leaves no poller behind",
        (
            (
                ("        self.keep()  # whoever opened it may have left meanwhile\n", ""),
                ("            found.keep()\n", ""),
            ),
        ),
    ),
    Law(
        5,
        "a timer that finds nothing due arms the next one",
        (((_REARM, _REARM.removesuffix("        self._arm()\n")),),),
    ),
    Law(
        6,
        "another loop has another poller, and an ended one is dropped",
        (
            (("_BY_LOOP.setdefault(loop, _Registry())", "next(iter(_BY_LOOP.values()), None) or _Registry()"),),
            (("        _BY_LOOP.pop(ended, None)\n", "        pass\n"),),
        ),
    ),
    Law(
        7,
        "failures are counted once for the service, and an error is each subscriber's own",
        (
            (
                (
                    "lasted = self._health.failed(error, now)",
                    "self._health.failed(error, now)\n        lasted = now - entry.failing_since",
                ),
                ("            self._health.restart()\n", "            return error\n"),
                ("self._hold_back(error, lasted)", "self._hold_back(error, 0.0)"),
            ),
            ((_OWN_ERROR, "subscription.wake(error)"),),
            (("now - self._reloaded > RELOAD_AGE", "False"),),
            (("                self._reloaded = now\n", ""),),
        ),
    ),
    Law(
        8, "subscribers are woken in slices", ((("            if number % SLICE == 0:\n", "            if False:\n"),),)
    ),
    Law(
        9,
        "Retry-After stops every worker, and the release is spread",
        (
            (
                (_GATE, "while self._due and self._due[0][0] <= self._loop.time():"),
                ("        at = max(self._due[0][0], self._gate)\n", "        at = self._due[0][0]\n"),
            ),
            ((_SPREAD, "self._gate = max(self._gate, self._loop.time() + pause)"),),
            (("min(lasted * HOLD, LONGEST_HOLD)", "0.0"),),
        ),
    ),
    Law(
        10,
        "what is logged is a change, the first failure, the recovery, and a line now and then",
        (
            (("        self._reads += 1\n", "        self._reads += 1\n        log.info('read once more')\n"),),
            (("        if now - self._spoke >= LOG_EVERY:\n", "        if True:\n"),),
            (("        if now - self._spoke >= LOG_EVERY:\n", "        if not self._told:\n"),),
            (("        if waits:\n", "        if False:\n"),),
        ),
    ),
    Law(
        11,
        "a worker never dies: whatever a lane raises is an outcome",
        ((("        except Exception as bug:", "        except ZeroDivisionError as bug:"),),),
    ),
)
