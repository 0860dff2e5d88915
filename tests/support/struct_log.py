"""Messages of a CommitLog by a few lines of struct, to compare exports with: none of our code reads here."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_MESSAGE, _BLANK = 0xDAA320A7, 0xCBD43194


class LogRow(NamedTuple):
    """Fields of a message that a row of an export must have."""

    physical_offset: int
    store_timestamp: int
    topic: str
    body: bytes


def log_rows(directory: Path) -> Iterator[LogRow]:
    """Yield the messages of a commit log whose hosts are of IPv4 and whose topics have at most 127 bytes."""
    for path in sorted(directory.iterdir()):
        data, at = path.read_bytes(), 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic in {0, _BLANK}:
                break
            assert magic == _MESSAGE, hex(magic)
            offset, _sys_flag, _born, _host, _port, stored = struct.unpack_from(">qiqIIq", data, at + 28)
            (length,) = struct.unpack_from(">i", data, at + 84)
            body = data[at + 88 : at + 88 + length]
            topic_at = at + 88 + length + 1
            topic = data[topic_at : topic_at + data[topic_at - 1]].decode()
            yield LogRow(offset, stored, topic, body)
            at += size
