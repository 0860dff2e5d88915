"""Ranges of store files that a reader could not read."""

import logging
from dataclasses import dataclass, field
from typing import Final, NamedTuple

logger = logging.getLogger(__name__)

#: Reason of a range whose body has a valid checksum, but cannot be decompressed.
BODY_UNREADABLE: Final = "body-unreadable"


@dataclass(frozen=True, slots=True, order=True)
class SkippedRange:
    """Invalid bytes ``position`` to ``position + length`` of the commit-log file ``path`` of a broker.

    ``reason`` is the name of the broken rule (``codec.storefile.audit_rules.AuditRule``), or ``BODY_UNREADABLE``.
    """

    broker: str
    path: str
    position: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True, order=True)
class UnprovenRange:
    """Physical offsets ``low`` to before ``high`` of a broker's log, where topics are read from the log itself.

    The queues are not proven to have all messages there; ``reason`` is why.
    """

    broker: str
    low: int
    high: int
    reason: str


class NotRead(NamedTuple):
    """Unreadable parts of commit logs: damaged or missing ranges, and unfinished ends."""

    ranges: int
    bytes: int


@dataclass(slots=True)
class DecodeReport:
    """Report that a reader fills; it is complete after the last batch."""

    messages: int = 0  # rows delivered
    broken: list[SkippedRange] = field(default_factory=list)  # damage before records, or in a full file; no rows
    unfinished: list[SkippedRange] = field(default_factory=list)  # log ends by a write in progress or a crash; no rows
    missing: list[SkippedRange] = field(default_factory=list)  # files that do not exist between others
    wrong_bodies: list[SkippedRange] = field(default_factory=list)  # rows with a wrong checksum or compression
    unproven: list[UnprovenRange] = field(default_factory=list)  # ranges read without queues, without loss

    @property
    def ranges(self) -> list[SkippedRange]:
        """All damaged ranges, by broker, file and position."""
        return sorted(self.broken + self.unfinished + self.missing + self.wrong_bodies)

    def add_broken(self, skipped: SkippedRange) -> None:
        """Record and log a damaged range."""
        self.broken.append(skipped)
        text = "%s: no readable record in %d bytes from position %d; skipped"
        self.warn(text, skipped.path, skipped.length, skipped.position)

    def add_unfinished(self, skipped: SkippedRange) -> None:
        """Record and log an unfinished end of the log."""
        self.unfinished.append(skipped)
        text = "%s: the log ends in an unfinished record of %d bytes at position %d; left out"
        self.warn(text, skipped.path, skipped.length, skipped.position)

    def add_missing(self, skipped: SkippedRange) -> None:
        """Record and log a range of the log that is in no file."""
        self.missing.append(skipped)
        text = "%s: the file ends at position %d; the %d bytes of the log after it are in no file and are not read"
        self.warn(text, skipped.path, skipped.position, skipped.length)

    def add_wrong_body(self, found: SkippedRange) -> None:
        """Record and log a message with an invalid body."""
        self.wrong_bodies.append(found)
        self.warn("%s: the body of the message at position %d: %s", found.path, found.position, found.reason)

    def add_unproven(self, found: UnprovenRange) -> None:
        """Record and log a part of the log that is read without its queues."""
        self.unproven.append(found)
        text = "broker %s: %s; the log itself is read from offset %d to %d"
        self.warn(text, found.broker, found.reason, found.low, found.high)

    def warn(self, text: str, *values: object) -> None:
        """Log a warning."""
        logger.warning(text, *values)
