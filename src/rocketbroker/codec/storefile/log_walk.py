"""Walk over the records of a CommitLog file, used by recovery, re-dispatch, ``mqstore`` and analytics.

Records are found many at a time (``record_columns.py``), and one by one where that finds anything irregular. The walk
stops at the first position without a sound record, and reports the content there. It resumes after damage at the next
record. A record with sound lengths and a damaged body is skipped as a whole, so that bytes in a body are never taken
for a record; after other damage every byte is searched.

numpy is imported only after the first few records, if there are more: its import takes longer than a broker may take to
start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final

from rocketbroker.codec.storefile.record_search import (
    Found,
    damage_in,
    find_record,
    inspect,
    store_timestamp,
    what_is_wrong,
)
from rocketbroker.common.errors import StoreError

if TYPE_CHECKING:
    from rocketbroker.codec.message.columns import Positions
    from rocketbroker.codec.storefile.audit_rules import AuditRule
    from rocketbroker.codec.storefile.record_columns import Records
    from rocketbroker.codec.storefile.store_file import LogWindow

# Records whose bodies are checked without numpy.
_FEW: Final = 64


class Stretch:
    """Consecutive records of a file, in the memory of the window: use them before the next ones are read.

    Args:
        base: physical offset of the first byte of ``data``.
        data: bytes of the log.
        starts: starts of the records in ``data``; at least one.
        end: end of the last record in ``data``.
    """

    def __init__(self, base: int, data: memoryview, starts: list[int] | Positions, end: int) -> None:
        self.base = base
        self.data = data
        self.end = end
        self._starts = starts

    def __len__(self) -> int:
        return len(self._starts)

    @property
    def begin_offset(self) -> int:
        """Physical offset of the first record."""
        return self.base + int(self._starts[0])

    @property
    def last_offset(self) -> int:
        """Physical offset of the last record."""
        return self.base + int(self._starts[-1])

    @property
    def end_offset(self) -> int:
        """Physical offset after the last record."""
        return self.base + self.end

    @cached_property
    def starts(self) -> list[int]:
        """Starts of the records in ``data``."""
        return self._starts if isinstance(self._starts, list) else self._starts.tolist()

    @property
    def offsets(self) -> list[int]:
        """Physical offsets of the records."""
        return [self.base + start for start in self.starts]

    @cached_property
    def records(self) -> Records:
        """The records by column."""
        import numpy as np

        from rocketbroker.codec.storefile.record_columns import Records

        return Records(self.base, np.frombuffer(self.data, np.uint8), np.asarray(self._starts, np.int64))

    def __getitem__(self, number: int) -> memoryview:
        """Return the bytes of one record."""
        begin, stop = int(self._starts[number]), self.end
        if number + 1 < len(self):
            stop = int(self._starts[number + 1])
        return self.data[begin:stop]

    def first(self, count: int) -> Stretch:
        """Return the first ``count`` records, at least one."""
        if count == len(self):
            return self
        return Stretch(self.base, self.data, self._starts[:count], int(self._starts[count]))

    def followed_by(self, other: Stretch) -> Stretch:
        """Return these records and those of ``other``, which follow them in the same memory."""
        return Stretch(self.base, self.data, [*self.starts, *other.starts], other.end)

    def first_after(self, timestamp_ms: int, offset: int) -> int | None:
        """Return the offset of the first record from ``offset`` on that was stored after a time, if there is one."""
        if self.end_offset <= offset:
            return None
        if len(self) <= _FEW:
            found = (self.base + at for at in self.starts if store_timestamp(self.data[at:]) > timestamp_ms)
            return next((at for at in found if at >= offset), None)
        records = self.records
        after = (records.field("store_timestamp") > timestamp_ms) & (records.starts + records.base >= offset)
        first = int(after.argmax())
        return self.base + self.starts[first] if after[first] else None


class FileWalk:
    """Sound records of one CommitLog file, in stretches.

    An iteration ends at the first ``position`` before which all records below ``high`` were yielded. ``found`` is the
    kind of bytes there: it is set before the last stretch is yielded, and ``None`` until then. Set ``position`` and
    iterate again to resume.

    Args:
        window: window on the file.
        position: start of a record.
        high: position before which records begin.
        few: number of records to take one by one first.
        check_bodies: true to stop also at a record with a damaged body.
    """

    def __init__(
        self, window: LogWindow, position: int, high: int, *, few: int = 0, check_bodies: bool = False
    ) -> None:
        self.window = window
        self.position = position
        self.found: Found | None = None
        self._high = high
        self._few = few
        self._check_bodies = check_bodies
        self._damage: tuple[AuditRule, str] | None = None

    def __iter__(self) -> Iterator[Stretch]:
        self.found, self._damage, few = None, None, self._few
        while not self._stopped():
            self._load()
            stretch = None if few else self._many()
            if (one_by_one := self._one_by_one(few)) is not None:
                few = max(few - len(one_by_one), 0)
                stretch = one_by_one if stretch is None else stretch.followed_by(one_by_one)
            if stretch is not None:
                yield from self._sound(stretch)

    def _stopped(self) -> bool:
        return self.found is not None

    def _load(self) -> None:
        """Load the next part of the file into the window, at least one record."""
        window, position = self.window, self.position
        if not window.start == position < window.end:
            window.load(position)
        size = inspect(window, position)[1]
        if window.end < position + size:
            window.load(position, size)
        if window.end < position + size:
            raise StoreError(f"the CommitLog file that begins at {window.file.base} became shorter while it was read")

    def _many(self) -> Stretch | None:
        """Take the records that chains find, if there are enough for chains."""
        from rocketbroker.codec.storefile.record_columns import chain_records

        window = self.window
        chains = chain_records(window, self._high)
        if chains is None:
            return None
        records, self.position = chains
        stretch = Stretch(records.base, window.data, records.starts, self.position - window.start)
        stretch.records = records
        return stretch

    def _one_by_one(self, most: int) -> Stretch | None:
        """Take the records after those, unless chains continue in the next window."""
        window, starts, begin = self.window, list[int](), self.window.start
        position = self.position
        goes_on = begin < position and window.end < min(self._high, window.file.data_end)
        if goes_on and inspect(window, position)[0] is Found.RECORD:
            return None
        while not most or len(starts) < most:
            found, size = inspect(window, position)
            if found is not Found.RECORD or position >= self._high:
                self.found = found
                break
            if position + size > window.end:
                break
            starts.append(position - begin)
            position += size
        self.position = position
        return Stretch(window.file.base + begin, window.data, starts, position - begin) if starts else None

    def _sound(self, stretch: Stretch) -> Iterator[Stretch]:
        """Yield the records of a stretch before the first one with a damaged body."""
        number = len(stretch)
        for each in self._suspects(stretch) if self._check_bodies else ():
            self._damage = damage_in(stretch[each], self.window.start + stretch.starts[each])
            if self._damage is not None:
                number, self.found, self.position = each, Found.BROKEN, self.window.start + stretch.starts[each]
                break
        if number:
            yield stretch.first(number)

    def _suspects(self, stretch: Stretch) -> Iterable[int]:
        """Return the numbers of the records to check one by one: all of a few, the suspicious ones of many."""
        if len(stretch) <= _FEW:
            return range(len(stretch))
        return stretch.records.suspects(self.window.start, stretch.end)

    def damage(self) -> tuple[AuditRule, str]:
        """Return the rule that is broken where the walk stopped, and the fault."""
        return self._damage or what_is_wrong(self.window, self.position)

    def next_record(self, high: int) -> int:
        """Return the position of the next record after the one where the walk stopped, or -1.

        Args:
            high: position before which it begins.
        """
        return find_record(self.window, self.position + max(inspect(self.window, self.position)[1], 1), high)
