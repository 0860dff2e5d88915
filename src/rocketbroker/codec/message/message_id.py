"""Message ids and hosts (MessageId, MessageDecoder.createMessageId, MessageClientIDSetter).

    host          := [4|16] ip, int32 port                                                      8 or 20 bytes
    offset msg id := host of the broker, int64 commit-log offset              upper hex, 32 or 56 digits
    unique id     := [4|16] ip, int16 pid, int32 class-loader hash,
                     int32 ms since the month began, int16 counter            upper hex, 32 or 56 digits

Other clients make unique ids of their own kinds; only ids made here can be parsed.
"""

from __future__ import annotations

import itertools
from base64 import urlsafe_b64encode
from binascii import Error, a2b_base64
from collections.abc import Callable
from datetime import UTC, datetime
from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.common.errors import CodecError

_PORT_AND_OFFSET: Final = Struct(">iq")
_UNIQUE_TAIL: Final = Struct(">HIIH")
_HEX_DIGITS: Final = frozenset("0123456789abcdefABCDEF")


class MessageId(NamedTuple):
    """Decoded offset message id: place of the message, and the broker that has it."""

    ip: str
    port: int
    offset: int


class UniqueId(NamedTuple):
    """Decoded unique id; ``ms_diff`` counts from the first of the month in the client's time zone."""

    ip: str
    pid: int
    clazz_hash: int
    ms_diff: int
    counter: int


def ip_bytes(ip: str) -> bytes:
    """Return the 4 or 16 bytes of an address in text; :class:`CodecError` for a name or anything else."""
    parts = ip.split(".")
    if len(parts) == 4 and all(
        part.isascii() and part.isdigit() and len(part) < 4 and int(part) < 256 for part in parts
    ):
        return bytes(map(int, parts))
    from ipaddress import AddressValueError, IPv6Address

    try:
        return IPv6Address(ip).packed
    except AddressValueError as error:
        raise CodecError(f"{ip!r} is neither an IPv4 nor an IPv6 address: {error}") from error


def ip_text(ip: bytes) -> str:
    """Return the text of an address of 4 or 16 bytes."""
    if len(ip) == 4:
        return f"{ip[0]}.{ip[1]}.{ip[2]}.{ip[3]}"
    if len(ip) != 16:
        raise CodecError(f"an address has 4 or 16 bytes, not {len(ip)}")
    from ipaddress import IPv6Address

    return IPv6Address(ip).compressed


def host_bytes(ip: str, port: int) -> bytes:
    """Return a record's host field, 8 or 20 bytes."""
    if not 0 <= port <= 65535:
        raise CodecError(f"port {port} is outside 0..65535")
    return ip_bytes(ip) + port.to_bytes(4, "big")


def decode_host(host: bytes) -> tuple[str, int]:
    """Return the address in text and port of a host field of 8 or 20 bytes."""
    return ip_text(bytes(host[:-4])), int.from_bytes(host[-4:], "big", signed=True)


def join_address(host: str, port: int) -> str:
    """Return ``host:port``, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def host_of(address: str) -> str:
    """Return the host of ``host:port``, without the brackets of an IPv6 address."""
    return address.rpartition(":")[0].strip("[]")


def host_text(host: bytes) -> str:
    """Return ``ip:port`` of a host field, ``[ip]:port`` for IPv6."""
    return join_address(*decode_host(host))


def create_message_id(store_host: bytes, offset: int) -> str:
    """Return the offset message id of the record at commit-log ``offset`` of the broker with host field ``store_host``.

    A caller with many messages of one host keeps ``store_host.hex().upper()`` and appends ``f"{offset:016X}"``.
    """
    return f"{store_host.hex().upper()}{offset:016X}"


def decode_message_id(text: str) -> MessageId:
    """Return the parts of an offset message id."""
    data = _unhex(text, "an offset message id")
    port, offset = _PORT_AND_OFFSET.unpack_from(data, len(data) - 12)
    return MessageId(ip_text(data[:-12]), port, offset)


def encode_unique_id(ip: bytes, pid: int, clazz_hash: int, ms_diff: int, counter: int) -> str:
    """Return the unique id of these parts, each cut to its field as Java's casts do; ``ip`` has 4 or 16 bytes."""
    if len(ip) not in {4, 16}:
        raise CodecError(f"an address has 4 or 16 bytes, not {len(ip)}")
    tail = _UNIQUE_TAIL.pack(pid & 0xFFFF, clazz_hash & 0xFFFFFFFF, ms_diff & 0xFFFFFFFF, counter & 0xFFFF)
    return (ip + tail).hex().upper()


def decode_unique_id(text: str) -> UniqueId:
    """Return the parts of a unique id as Java and Go clients make it; any 32 or 56 hex digits are accepted."""
    data = _unhex(text, "a unique message id")
    return UniqueId(ip_text(data[:-12]), *_UNIQUE_TAIL.unpack_from(data, len(data) - 12))


def _unhex(text: str, what: str) -> bytes:
    if len(text) not in {32, 56} or not _HEX_DIGITS.issuperset(text):
        shown = text if len(text) <= 64 else f"{text[:64]}…"
        raise CodecError(f"{shown!r} is not {what}: 32 or 56 hexadecimal digits are expected")
    return bytes.fromhex(text)


class UniqueIds:
    """Generator of ids from address, process, a random number, time and a counter.

    Args:
        ip: address of this machine, 4 or 16 bytes.
        pid: the process id.
        salt: a random number of 32 bits, like the hash of the class loader in Java; generators of one process must have
            different ones.
        time_ms: returns the time in ms since the epoch.
    """

    def __init__(self, ip: bytes, pid: int, salt: int, time_ms: Callable[[], int]) -> None:
        # All but time and counter, which are the last 12 digits.
        self._prefix = encode_unique_id(ip, pid, salt, 0, 0)[:-12]
        self._time_ms = time_ms
        self._counter = itertools.count()
        self._month_start, self._next_month_start = 0, 0

    def create(self) -> str:
        """Return the next id: 32 or 56 upper-case hex digits."""
        now = self._time_ms()
        if not self._month_start <= now < self._next_month_start:
            self._month_start, self._next_month_start = month_around(now)
        return f"{self._prefix}{now - self._month_start:08X}{next(self._counter) & 0xFFFF:04X}"


def month_around(time_ms: int) -> tuple[int, int]:
    """Return the start of the local month of a time, and of the next month; all in ms since the epoch."""
    here = datetime.fromtimestamp(time_ms / 1000, tz=UTC).astimezone()
    year, month = here.year, here.month
    following = (year + 1, 1) if month == 12 else (year, month + 1)
    # A naive date means local time, daylight saving included.
    start, end = (int(datetime(*first, 1).timestamp() * 1000) for first in ((year, month), following))  # noqa: DTZ001
    return start, end


# Handle by which a producer cancels a timer message (org.apache.rocketmq.common.producer.RecallMessageHandle).
#
#     handle := base64url of "v1" topic brokerName deliverMs uniqueKey, joined by blanks; padded
#
# ``deliverMs`` is one more than TIMER_OUT_MS, so that the cancel, due at that time, gets into the same slot.

VERSION_1: Final = "v1"
_PARTS: Final = 5
_SHOWN: Final = 64
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


class RecallMessageHandle(NamedTuple):
    """Names one timer message. ``deliver_ms`` is the text as sent; its user checks that it is a number."""

    topic: str
    broker_name: str
    deliver_ms: str
    message_id: str

    def encode(self) -> str:
        """Return the handle in the form that producers receive."""
        return urlsafe_b64encode(" ".join((VERSION_1, *self)).encode()).decode()


def decode_recall_handle(handle: str) -> RecallMessageHandle:
    """Decode a handle; padding may be missing, as in Java.

    Raises:
        CodecError: The handle is invalid.
    """
    try:
        padded = handle.encode("ascii") + b"=" * (-len(handle) % 4)
        parts = a2b_base64(padded.translate(_TO_STANDARD), strict_mode=True).decode().split(" ")
    except (UnicodeError, Error) as error:
        raise CodecError(f"recall handle is invalid: {handle[:_SHOWN]!r} is not base64url of UTF-8") from error
    if len(parts) < _PARTS or parts[0] != VERSION_1:
        raise CodecError(
            f"recall handle is invalid: it holds {' '.join(parts)[:_SHOWN]!r} instead of v1, topic, broker, time and "
            "unique key"
        )
    return RecallMessageHandle(*parts[1:_PARTS])
