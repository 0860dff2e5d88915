"""Ranges of store files that a reader could not read."""

import logging
from dataclasses import dataclass, field
from typing import Final

logger = logging.getLogger(__name__)

#: Reason of a range whose body is sound, but cannot be unpacked.
BODY_UNREADABLE: Final = "body-unreadable"


@dataclass(frozen=True, slots=True, order=True)
class SkippedRange:
    """Bytes ``position`` to ``position + length`` of the commit-log file ``path`` of a broker that are not as they
    should be.

    ``reason`` is the name of the broken rule (``codec.storefile.audit_rules.AuditRule``), or ``BODY_UNREADABLE``.
    """

    broker: str
    path: str
    position: int
    length: int
    reason: str


@dataclass(frozen=True, slots=True, order=True)
class UnprovenRange:
    """Physical offsets ``low`` to before ``high`` of a broker's log, which is itself read there for topics.

    It could not be shown that their queues have all messages from there, for a ``reason`` in words.
    """

    broker: str
    low: int
    high: int
    reason: str


@dataclass(slots=True)
class DecodeReport:
    """Filled while stores are read; complete when the last batch was taken.

    ``messages`` counts rows delivered. No row comes from these ranges: ``broken`` have readable records behind them, or
    lie in a file that was already full; ``unfinished`` are at the very end of a log, a write under way or cut by a
    crash; ``missing`` are files between others that do not exist. Rows do come from ``wrong_bodies``: their checksum is
    wrong, if checksums are compared, or they cannot be unpacked. ``unproven`` lost nothing: it took longer to read.
    """

    messages: int = 0
    broken: list[SkippedRange] = field(default_factory=list)
    unfinished: list[SkippedRange] = field(default_factory=list)
    missing: list[SkippedRange] = field(default_factory=list)
    wrong_bodies: list[SkippedRange] = field(default_factory=list)
    unproven: list[UnprovenRange] = field(default_factory=list)

    @property
    def ranges(self) -> list[SkippedRange]:
        """All ranges, by broker, file and position."""
        return sorted(self.broken + self.unfinished + self.missing + self.wrong_bodies)

    def add_broken(self, skipped: SkippedRange) -> None:
        """Count and log a damaged range."""
        self.broken.append(skipped)
        logger.warning(
            "%s: no readable record in %d bytes from position %d; skipped",
            skipped.path,
            skipped.length,
            skipped.position,
        )

    def add_unfinished(self, skipped: SkippedRange) -> None:
        """Count and log an unfinished end of the log."""
        self.unfinished.append(skipped)
        logger.warning(
            "%s: the log ends in an unfinished record of %d bytes at position %d; left out",
            skipped.path,
            skipped.length,
            skipped.position,
        )

    def add_missing(self, skipped: SkippedRange) -> None:
        """Count and log bytes of the log that are in no file."""
        self.missing.append(skipped)
        logger.warning(
            "%s: the file ends at position %d, and the %d bytes of the log behind it are in no file: they are not read",
            skipped.path,
            skipped.position,
            skipped.length,
        )

    def add_wrong_body(self, found: SkippedRange) -> None:
        """Count and log a message whose body is wrong."""
        self.wrong_bodies.append(found)
        logger.warning("%s: the body of the message at position %d: %s", found.path, found.position, found.reason)

    def add_unproven(self, found: UnprovenRange) -> None:
        """Count and log a part of the log in which queues are not relied on."""
        self.unproven.append(found)
        logger.warning(
            "broker %s: %s; from offset %d to %d the log itself is read",
            found.broker,
            found.reason,
            found.low,
            found.high,
        )
