"""Reads a commit log with a plain loop over struct, sharing no code with the package: reference of fast readers."""

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194


def slow_rows(commit_log: Path, broker: str | None = None) -> list[dict[str, Any]]:
    """Return every record of a sound commit log as a row of the table ``messages``; times in ms since 1970.

    The broker is called like the folder that the log is in unless it has a name.
    """
    name = {"broker": broker or commit_log.parent.name}
    files = sorted(path for path in commit_log.iterdir() if len(path.name) == 20)
    return [name | row for path in files for row in _file_rows(path.read_bytes())]


def _file_rows(data: bytes) -> Iterator[dict[str, Any]]:
    at = 0
    while at + 8 <= len(data):
        size, magic = struct.unpack_from(">iI", data, at)
        if size == 0 or magic == BLANK:
            return
        assert magic in {V1, V2}, f"no record at {at}"
        yield _row(data[at : at + size], magic)
        at += size


def _row(record: bytes, magic: int) -> dict[str, Any]:
    size, _, crc, queue_id, flag, queue_offset, physical, sys_flag, born = struct.unpack_from(">iIiiiqqiq", record)
    at = 48
    born_host, at = record[at : at + (20 if sys_flag & 16 else 8)], at + (20 if sys_flag & 16 else 8)
    (stored,) = struct.unpack_from(">q", record, at)
    at += 8
    store_host, at = record[at : at + (20 if sys_flag & 32 else 8)], at + (20 if sys_flag & 32 else 8)
    reconsumed, prepared, body_length = struct.unpack_from(">iqi", record, at)
    at += 16
    body, at = record[at : at + body_length], at + body_length
    topic_length = record[at] if magic == V1 else int.from_bytes(record[at : at + 2], "big")
    at += 1 if magic == V1 else 2
    topic, at = record[at : at + topic_length], at + topic_length
    (properties_length,) = struct.unpack_from(">h", record, at)
    at += 2
    assert at + properties_length == size == len(record)
    properties = java_properties(record[at:].decode("utf-8", "replace"))
    return {
        "topic": topic.decode("utf-8", "replace"),
        "queue_id": queue_id,
        "queue_offset": queue_offset,
        "physical_offset": physical,
        "store_timestamp": stored,
        "born_timestamp": born,
        "born_host": _host(born_host),
        "store_host": _host(store_host),
        "msg_id": (store_host + struct.pack(">q", physical)).hex().upper(),
        "uniq_key": properties.get("UNIQ_KEY"),
        "keys": properties.get("KEYS"),
        "tags": properties.get("TAGS"),
        "flag": flag,
        "sys_flag": sys_flag,
        "reconsume_times": reconsumed,
        "prepared_transaction_offset": prepared,
        "body": body,
        "body_crc": crc,
        "properties": properties,
        "size": size,
    }


def java_properties(text: str) -> dict[str, str]:
    """Return the pairs of a properties string whose name and value are not empty; the last of a name wins."""
    pairs = {}
    for part in text.split("\x02"):
        name, mark, value = part.partition("\x01")
        if name and mark and value:
            pairs[name] = value
    return pairs


def _host(raw: bytes) -> str:
    family = socket.AF_INET if len(raw) == 8 else socket.AF_INET6
    return f"{socket.inet_ntop(family, raw[:-4])}:{struct.unpack('>i', raw[-4:])[0]}"
