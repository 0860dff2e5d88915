"""Comparison of a slave's log with that of its master, over the HA port.

A master sends its log from whatever offset a slave reports first. So a slave reports an offset before its end, and
compares what comes with what it has: a log whose last record is the same has the same history, as records hold their
offset and times.
"""

import asyncio
from bisect import bisect_right
from typing import Final, NamedTuple

from rocketbroker.codec.ha_frames import LogPart
from rocketbroker.codec.message.message_decoder import BLANK_LENGTH, BODY_POSITION
from rocketbroker.common.errors import CodecError, RemotingSendError, StoreError
from rocketbroker.ha.master_link import UNPROTECTED, LinkSecurity, MasterLink
from rocketbroker.store.commitlog.commit_log import CommitLog
from rocketbroker.store.commitlog.commit_log_walker import LogWalk, leads_to_end

# Bytes at the end of the log that are compared at least; more by this factor until a whole record is among them.
_COMPARED: Final = 4096
_GROWTH: Final = 16
_READ_SIZE: Final = 64 << 10


class DifferentHistoryError(StoreError):
    """The slave has messages that its master does not have: ``offset`` is the first byte that is known to differ."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class NothingSentError(DifferentHistoryError):
    """The master sends nothing from ``offset`` on: an Apache master whose log ends there, or whose file was removed."""


async def begin_of_last_file(address: str, silence_s: float, security: LinkSecurity = UNPROTECTED) -> int:
    """Return the CommitLog offset at which the last file of a master begins.

    Raises:
        RemotingError: The master does not answer.
        CodecError: Its answer is wrong.
    """
    link = await MasterLink.connect(address, silence_s, security)
    try:
        link.report(0)
        while not (parts := await link.read(_READ_SIZE)):
            pass
        return parts[0].offset
    finally:
        link.close()


class TailCheck:
    """Compares the end of the own log, with its last record, with what the master sends first (blocks).

    Attributes:
        begin: CommitLog offset to report first.
    """

    def __init__(self, commit_log: CommitLog) -> None:
        self._commit_log = commit_log
        self._end = commit_log.max_offset
        # Not 0, which asks for the master's last file.
        self.begin = max(self._begin_with_record(), 1)
        self._at = self.begin

    def _begin_with_record(self) -> int:
        """Return an offset that is not after the begin of the last record."""
        queue, end, reach = self._commit_log.queue, self._end, _COMPARED
        # A BLANK is shorter than the record that did not fit into its place.
        most = 2 * (self._commit_log.longest_record + BLANK_LENGTH)
        lowest = max(end - most, (end - 1) - (end - 1) % queue.file_size)
        while (begin := end - reach) > lowest and not leads_to_end(queue, begin, end):
            reach *= _GROWTH
        return max(begin, lowest)

    @property
    def is_done(self) -> bool:
        """True once the whole end was the same."""
        return self._at == self._end

    def take(self, part: LogPart) -> LogPart:
        """Compare a part of the master's log; return what follows the own log.

        Raises:
            DifferentHistoryError: The master's log has other bytes, or is shorter.
            CodecError: It is not what was asked for.
            StoreError: The own bytes are gone.
        """
        if self.is_done:
            return part
        if part.offset < self._at or not part.data:
            kind = NothingSentError if part.offset == self.begin else DifferentHistoryError
            raise kind(part.offset, f"the master's log ends at {part.offset}, this one at {self._end}")
        if part.offset > self._at:
            raise CodecError(f"the master sends {part.offset} instead of {self._at}")
        size = min(len(part.data), self._end - self._at)
        own = self._commit_log.bytes_at(self._at, size)
        if own is None:
            raise StoreError(f"the file of this log with {self._at} was removed while it was compared")
        if part.data[:size] != own:
            same = next(at for at in range(size) if own[at] != part.data[at])
            raise DifferentHistoryError(self._at + same, f"the master's log has other bytes from {self._at + same} on")
        self._at += size
        return LogPart(part.offset + size, part.data[size:])


class Place(NamedTuple):
    """A record, or the BLANK of a file, by its CommitLog offset and the offset after it."""

    begin: int
    end: int


class CommonPrefix:
    """Search for the first record of the own log that the master does not have, by questions to its HA port."""

    def __init__(
        self, address: str, commit_log: CommitLog, silence_s: float, security: LinkSecurity = UNPROTECTED
    ) -> None:
        self._address = address
        self._commit_log = commit_log
        self._silence_s = silence_s
        self._security = security
        self._begin_of_last_file: int | None = None

    async def find_end(self, differs_at: int) -> int:
        """Return the CommitLog offset of that record, given an offset where the logs are known to differ.

        Raises:
            RemotingError: The master does not answer.
            CodecError: Its answer is wrong.
        """
        loop, size = asyncio.get_running_loop(), self._commit_log.queue.file_size
        low, high = self._commit_log.min_offset, differs_at
        # Whole files first, so that few records are walked over.
        while (middle := low + (high - low) // size // 2 * size) > low:
            low, high = (middle, high) if await self._is_same(middle) else (low, middle)
        while low < high:
            place = await loop.run_in_executor(None, self._place_of, low, (low + high) // 2)
            low, high = (place.end, high) if await self._is_same(place.begin) else (low, place.begin)
        return low

    async def _is_same(self, offset: int) -> bool:
        """Return true if the master has the record at an offset, or has removed its file."""
        same = await self._ask(offset)
        # A master without the file closes the connection each time; one that stops answers no second question.
        return (await self._ask(offset) if same is None else same) is not False

    async def _ask(self, offset: int) -> bool | None:
        """Return true if the master has the record at an offset, ``None`` if it closes the connection at once."""
        own = self._commit_log.bytes_at(offset, BODY_POSITION) or self._commit_log.bytes_at(offset, BLANK_LENGTH) or b""
        found = b""
        link = await MasterLink.connect(self._address, self._silence_s, self._security)
        try:
            # 0 asks for another offset.
            link.report(max(offset, 1))
            own = own[max(1 - offset, 0) :]
            while len(found) < len(own):
                for part in await link.read(_READ_SIZE):
                    if part.offset > max(offset, 1) + len(found):
                        return True
                    if not part.data:
                        return part.offset >= offset and await self._is_removed(offset)
                    found += part.data
        except RemotingSendError:
            if found:
                raise
            return None
        finally:
            link.close()
        return found[: len(own)] == own

    async def _is_removed(self, offset: int) -> bool:
        """Return true if the master has later files than the one with an offset that it does not have."""
        if self._begin_of_last_file is None:
            self._begin_of_last_file = await begin_of_last_file(self._address, self._silence_s, self._security)
        return offset < self._begin_of_last_file

    def _place_of(self, begin: int, offset: int) -> Place:
        """Return the record that an offset is in; one begins at ``begin``, before it (blocks)."""
        queue = self._commit_log.queue
        for stretch in LogWalk(queue, begin, check_crc=False, end=self._commit_log.max_offset):
            starts, ends = stretch.offsets, [*stretch.offsets[1:], stretch.end_offset]
            if offset < stretch.end_offset and starts[0] <= offset:
                number = bisect_right(starts, offset) - 1
                return Place(starts[number], ends[number])
            if starts[0] > offset:
                break
            begin = stretch.end_offset
        # Nothing but the BLANK of its file is there.
        return Place(begin, begin - begin % queue.file_size + queue.file_size)
