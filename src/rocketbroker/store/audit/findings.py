"""Collects what a check found: counts all of it, keeps so many of each rule and severity."""

from collections import Counter

from rocketbroker.codec.storefile.audit_rules import AuditRule, Finding, Severity, finding


class Findings:
    """What was found so far.

    Args:
        limit: so many findings of a rule and severity are kept; all are counted.
    """

    def __init__(self, limit: int = 20) -> None:
        self._limit = limit
        self.kept: list[Finding] = []
        self._kept_of: Counter[tuple[AuditRule, Severity]] = Counter()
        self.counts: Counter[tuple[AuditRule, Severity]] = Counter()

    def add(self, rule: AuditRule, path: object, position: int, detail: str, *, mended: bool = False) -> None:
        """Count a finding, and keep it if there are not too many of its rule."""
        found = finding(rule, path, position, detail, mended=mended)
        kind = rule, found.severity
        self.counts[kind] += 1
        if self._kept_of[kind] < self._limit:
            self._kept_of[kind] += 1
            self.kept.append(found)

    def count_of(self, severity: Severity) -> int:
        """How many there are of a severity."""
        return sum(count for (_, each), count in self.counts.items() if each is severity)
