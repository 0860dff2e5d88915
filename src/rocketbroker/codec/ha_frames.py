"""Bytes between a slave and the HA port of its master (DefaultHAConnection, DefaultHAClient).

::

    slave to master:  int64 offset                           the slave has the log up to here
    master to slave:  int64 offset, int32 size, size bytes   bytes of the CommitLog from an offset on

The first report asks the master to begin at its offset; 0 asks for the begin of the master's last file. A transfer
without bytes is a heartbeat. Transfers follow each other without a gap, and are not aligned to records.
"""

from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.common.errors import CodecError

REPORT: Final = Struct(">q")
TRANSFER_HEADER: Final = Struct(">qi")
#: Longest body that Apache's slave can take: its buffer has 4 MiB.
MAX_BODY: Final = (4 << 20) - TRANSFER_HEADER.size


class ReportReader:
    """Decoder of reports; it takes them in pieces of any length."""

    def __init__(self) -> None:
        self._rest = b""
        self._last = 0

    def feed(self, data: ReadableBuffer) -> int | None:
        """Return the last whole report, or ``None`` if no report became whole.

        Raises:
            CodecError: A report is negative, or lower than the one before.
        """
        data = self._rest + bytes(data)
        whole = len(data) - len(data) % REPORT.size
        self._rest = data[whole:]
        for (offset,) in REPORT.iter_unpack(data[:whole]):
            if offset < self._last:
                raise CodecError(f"the slave reports {offset} after {self._last}; reports never go back")
            self._last = offset
        return self._last if whole else None


class LogPart(NamedTuple):
    """Bytes of the master's log from a CommitLog offset on; none for a heartbeat."""

    offset: int
    data: memoryview


class TransferReader:
    """Decoder of transfers; it takes them in pieces of any length, and holds no more than a header.

    Attributes:
        end: CommitLog offset after the last bytes, ``None`` before the first transfer.
    """

    def __init__(self) -> None:
        self._header = b""
        self._missing = 0
        self.end: int | None = None

    def feed(self, data: ReadableBuffer) -> list[LogPart]:
        """Return the bytes of the log in ``data``, as slices of it.

        Raises:
            CodecError: A size is not possible, or the offset is not where the last transfer ended.
        """
        view, at, parts = memoryview(data), 0, list[LogPart]()
        while at < len(view):
            if self._missing:
                part = view[at : at + self._missing]
                parts.append(LogPart(self.end or 0, part))
                self.end = (self.end or 0) + len(part)
                self._missing -= len(part)
                at += len(part)
                continue
            piece = view[at : at + TRANSFER_HEADER.size - len(self._header)]
            self._header += piece
            at += len(piece)
            if len(self._header) == TRANSFER_HEADER.size and (heartbeat := self._begin()) is not None:
                parts.append(heartbeat)
        return parts

    def _begin(self) -> LogPart | None:
        """Take a whole header; return the part of a heartbeat."""
        offset, size = TRANSFER_HEADER.unpack(self._header)
        self._header = b""
        if not 0 <= size <= MAX_BODY:
            raise CodecError(f"the master announces {size:,} bytes for {offset}; at most {MAX_BODY:,} are possible")
        if offset < 0 or self.end not in {None, offset}:
            raise CodecError(f"the master continues at {offset} of the CommitLog, but sent it up to {self.end}")
        self.end, self._missing = offset, size
        return None if size else LogPart(offset, memoryview(b""))
