"""What an examination found, as values, and as text for people or JSON for programs.

A report hides the secrets that it is told of, whatever text they come in. Nothing is checked or sent here.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "Report", "Verdict"]

#: `failed` makes the exit code 1; a `warning` works and should be changed; a `note` is worth knowing.
Verdict = Literal["ok", "note", "warning", "failed", "skipped"]
_SHOWN: Mapping[Verdict, str] = {"ok": "ok  ", "note": "note", "warning": "WARN", "failed": "FAIL", "skipped": "skip"}
#: A shorter text stands in many words that are no secret.
SHORTEST = 4
#: Wide enough for the longest name of a check.
_NAME = 20


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        check: Its name.
        verdict: What it means.
        text: One sentence.
    """

    check: str
    verdict: Verdict
    text: str


@dataclass
class Report:
    """What was found so far.

    Attributes:
        secrets: Texts to hide.
        findings: In the order of the checks.
        learned: Proven values for the connection's extra, beside what it says already.
        proposed: Values for its `wire` that a document of the service suggests; not proven.
    """

    secrets: Iterable[str] = ()
    findings: list[Finding] = field(default_factory=list)
    learned: dict[str, Any] = field(default_factory=dict)
    proposed: dict[str, Any] = field(default_factory=dict)

    def add(self, check: str, verdict: Verdict, text: str) -> None:
        """Note what a check found."""
        self.findings.append(Finding(check, verdict, self._hidden(text)))

    def learn(self, **wire: Any) -> None:
        """Note overrides of the wire map that were proven."""
        self.learned.setdefault("wire", {}).update(wire)

    @property
    def exit_code(self) -> int:
        """0: nothing failed; 1: something did."""
        return int(any(finding.verdict == "failed" for finding in self.findings))

    def as_json(self) -> str:
        """Write the report for a program."""
        findings = [asdict(finding) for finding in self.findings]
        document = {"findings": findings, "extra": self.learned, "proposed": self.proposed}
        return self._hidden(json.dumps(document, indent=2))

    def as_text(self) -> str:
        """Write the report for people."""
        lines = [f"{_SHOWN[one.verdict]}  {one.check:<{_NAME}}  {one.text}" for one in self.findings]
        if self.learned:
            lines += ["", "Proven; put it into the connection's extra:", json.dumps(self.learned)]
        if self.proposed:
            lines += ["", "Proposed by the service's OpenAPI document, not proven; for the extra's \"wire\":"]
            lines += [json.dumps(self.proposed)]
        return self._hidden("\n".join(lines))

    def _hidden(self, text: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= SHORTEST:
                text = text.replace(secret, "***")
        return text
