"""What a reader of store files could not read."""

import logging
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SkippedRange:
    """Bytes ``position`` to ``position + length`` of the commit-log file ``path`` that hold no readable record."""

    path: str
    position: int
    length: int


@dataclass(slots=True)
class DecodeReport:
    """Filled while a store is read; complete when the last batch was taken.

    ``messages`` counts records delivered. ``broken`` are ranges with readable records behind them, or in a file that
    was already full: damage. ``unfinished`` are ranges at the very end of the log: a write under way or cut by a crash.
    """

    messages: int = 0
    broken: list[SkippedRange] = field(default_factory=list)
    unfinished: list[SkippedRange] = field(default_factory=list)

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
