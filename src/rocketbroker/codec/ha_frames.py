"""Bytes between a slave and the HA port of its master (DefaultHAConnection, DefaultHAClient).

::

    slave to master:  int64 offset                           the slave has the log up to here
    master to slave:  int64 offset, int32 size, size bytes   bytes of the CommitLog from an offset on

The first report asks the master to begin at its offset; 0 asks for the begin of the master's last file. A transfer
without bytes is a heartbeat. Transfers follow each other without a gap, and are not aligned to records.

With access control a handshake precedes these, which Apache's brokers do not know (``ha/ha_handshake.py``)::

    introduction := magic[8] nonce[32] int32 id, int16 length, cluster, int16 length, broker name, end[8 to 15]

``end`` are bytes 0xff, as many as make the introduction a multiple of eight bytes long. As offsets ``magic`` and the
last eight bytes are negative, as no report and no transfer is. Apache's master, which reads the last eight bytes alone,
takes them for -1, its value for a slave that has reported nothing: it acknowledges nothing, and waits.
"""

from struct import Struct
from typing import Final, NamedTuple, Self

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.common.errors import CodecError

REPORT: Final = Struct(">q")
TRANSFER_HEADER: Final = Struct(">qi")
#: Longest body that Apache's slave can take: its buffer has 4 MiB.
MAX_BODY: Final = (4 << 20) - TRANSFER_HEADER.size
#: First bytes of both ends of a handshake; the last two are its version.
HANDSHAKE_MAGIC: Final = b"\xffRMQHA\x00\x01"
NONCE_LENGTH: Final = 32
_HEAD: Final = Struct(f">8s{NONCE_LENGTH}si")
_LENGTH: Final = Struct(">H")
_MAX_NAME: Final = 1_024
_END: Final = b"\xff"
_END_LENGTH: Final = 8


class BrokerIdentity(NamedTuple):
    """Names of a broker: master and slaves have the same cluster and broker name."""

    cluster: str
    broker_name: str
    broker_id: int

    def __str__(self) -> str:
        return f"{self.broker_name[:100]!r} (id {self.broker_id}) of cluster {self.cluster[:100]!r}"


class Introduction(NamedTuple):
    """First frame of both ends of a handshake."""

    nonce: bytes
    broker: BrokerIdentity

    def encode(self) -> bytes:
        """Return the frame.

        Raises:
            CodecError: A name is too long.
        """
        names = b""
        for name in self.broker[:2]:
            data = name.encode()
            if len(data) > _MAX_NAME:
                raise CodecError(f"the name {name[:64]!r} of a broker has {len(data):,} bytes, above {_MAX_NAME:,}")
            names += _LENGTH.pack(len(data)) + data
        frame = _HEAD.pack(HANDSHAKE_MAGIC, self.nonce, self.broker.broker_id) + names
        return frame + _END * (_END_LENGTH + -(len(frame) + _END_LENGTH) % 8)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> tuple[Self, int] | None:
        """Return the frame at the begin of some bytes, and its length; ``None`` if it is not whole.

        Raises:
            CodecError: The bytes are no introduction.
        """
        data = bytes(data)
        if not HANDSHAKE_MAGIC.startswith(data[: len(HANDSHAKE_MAGIC)]):
            raise CodecError(f"it begins with the bytes {data[:8].hex()}, not with those of a handshake")
        if len(data) < _HEAD.size:
            return None
        _, nonce, broker_id = _HEAD.unpack_from(data)
        at, names = _HEAD.size, list[str]()
        for _ in range(2):
            if len(data) < at + _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack_from(data, at)
            if length > _MAX_NAME:
                raise CodecError(f"it announces a name of {length:,} bytes; at most {_MAX_NAME:,} are possible")
            at += _LENGTH.size + length
            if len(data) < at:
                return None
            try:
                names.append(data[at - length : at].decode())
            except UnicodeDecodeError:
                raise CodecError("the name of its broker is not UTF-8") from None
        end = at + _END_LENGTH + -(at + _END_LENGTH) % 8
        if data[at:end].strip(_END):
            raise CodecError("its introduction does not end as one")
        return (cls(nonce, BrokerIdentity(names[0], names[1], broker_id)), end) if len(data) >= end else None


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
