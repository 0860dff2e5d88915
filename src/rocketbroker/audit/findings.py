"""Findings of a check: all are counted, some of each rule and severity are kept."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from rocketbroker.codec.storefile.audit_rules import AuditRule, Severity
from rocketbroker.codec.storefile.file_rules import FileFault


class Finding(NamedTuple):
    """One place where a rule is broken.

    ``path`` is the file, ``position`` the byte in it (0 for the whole file), ``detail`` the actual and the expected
    content. The others are ``None`` where they do not apply to the rule.
    """

    rule: AuditRule
    severity: Severity
    path: str
    position: int
    detail: str
    topic: str | None = None
    queue_id: int | None = None
    queue_offset: int | None = None
    physical_offset: int | None = None

    @property
    def text(self) -> str:
        """The detail, after the queue offset if the finding is about one."""
        if self.queue_offset is None:
            return self.detail
        return f"{self.topic}/{self.queue_id} queue offset {self.queue_offset}: {self.detail}"


class Findings:
    """Findings so far.

    Args:
        limit: number of findings of each rule and severity that are kept.
        name_of: returns the full path of a file of the store.
    """

    def __init__(self, limit: int = 20, name_of: Callable[[str], str] = str) -> None:
        self._limit = limit
        self._name_of = name_of
        self.kept: list[Finding] = []
        self._kept_of: Counter[tuple[AuditRule, Severity]] = Counter()
        self.counts: Counter[tuple[AuditRule, Severity]] = Counter()

    def add(
        self,
        rule: AuditRule,
        path: str,
        position: int,
        detail: str,
        *,
        mended: bool = False,
        queue: tuple[str, int, int | None] | None = None,
        physical_offset: int | None = None,
    ) -> None:
        """Count a finding; keep it if the limit of its rule and severity allows.

        Args:
            rule: the broken rule.
            path: the file's path in the store.
            position: the byte in the file.
            detail: the actual and the expected content.
            mended: true for a warning, because the next start repairs it.
            queue: topic, queue number and queue offset.
            physical_offset: the place in the CommitLog.
        """
        kind = rule, Severity.WARNING if mended else rule.severity
        self.counts[kind] += 1
        if self._kept_of[kind] < self._limit:
            self._kept_of[kind] += 1
            topic, queue_id, queue_offset = queue or (None, None, None)
            shown = self._name_of(path)
            self.kept.append(Finding(*kind, shown, position, detail, topic, queue_id, queue_offset, physical_offset))

    def extend(self, other: "Findings") -> None:
        """Add findings that were collected with paths in the store."""
        self.counts.update(other.counts)
        for found in other.kept:
            kind = found.rule, found.severity
            if self._kept_of[kind] < self._limit:
                self._kept_of[kind] += 1
                self.kept.append(found._replace(path=self._name_of(found.path)))

    def add_faults(self, faults: Iterable[FileFault]) -> None:
        """Add the faults of files."""
        for fault in faults:
            self.add(*fault)

    def count_of(self, severity: Severity) -> int:
        """Count the findings of a severity."""
        return sum(count for (_, each), count in self.counts.items() if each is severity)
