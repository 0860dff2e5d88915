"""Findings of a check: all are counted, some of each rule and severity are kept."""

from collections import Counter
from collections.abc import Iterable

from rocketbroker.codec.storefile.audit_rules import AuditRule, Finding, Severity, finding
from rocketbroker.codec.storefile.file_rules import FileFault


class Findings:
    """Findings so far.

    Args:
        limit: number of findings of each rule and severity that are kept.
    """

    def __init__(self, limit: int = 20) -> None:
        self._limit = limit
        self.kept: list[Finding] = []
        self._kept_of: Counter[tuple[AuditRule, Severity]] = Counter()
        self.counts: Counter[tuple[AuditRule, Severity]] = Counter()

    def add(self, rule: AuditRule, path: object, position: int, detail: str, *, mended: bool = False) -> None:
        """Count a finding; keep it if the limit of its rule and severity allows."""
        found = finding(rule, path, position, detail, mended=mended)
        kind = rule, found.severity
        self.counts[kind] += 1
        if self._kept_of[kind] < self._limit:
            self._kept_of[kind] += 1
            self.kept.append(found)

    def add_faults(self, faults: Iterable[FileFault]) -> None:
        """Add the faults of files."""
        for fault in faults:
            self.add(*fault)

    def count_of(self, severity: Severity) -> int:
        """Count the findings of a severity."""
        return sum(count for (_, each), count in self.counts.items() if each is severity)
