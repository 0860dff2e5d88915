"""Damages commit logs at seeded places, and says by plain struct which of their records are left.

It uses nothing of the package: it is the reference for readers of damaged stores. The places of records come from the
sound log, so that no search for the next record is needed.
"""

import random
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.slow_store_reader import BLANK, V1, V2, _row

_LEAST = 91  # bytes of a record with nothing in it


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A record of the log: its file's name, where it begins in that, and its bytes."""

    file: str
    position: int
    size: int


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes of a file that were changed, and how."""

    file: str
    position: int
    length: int
    kind: str


def places(commit_log: Path) -> Iterator[RecordPlace]:
    """Yield all records of a sound commit log in order."""
    for path in sorted(path for path in commit_log.iterdir() if len(path.name) == 20):
        data, position = path.read_bytes(), 0
        while position + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, position)
            if size == 0 or magic == BLANK:
                break
            yield RecordPlace(path.name, position, size)
            position += size


def slow_rows_of(commit_log: Path, wanted: Iterable[RecordPlace], broker: str) -> Iterator[dict[str, Any]]:
    """Yield a row of the table ``messages`` for each place that still has a sound record."""
    name, data = "", b""
    for place in wanted:
        if place.file != name:
            name, data = place.file, (commit_log / place.file).read_bytes()
        record = data[place.position : place.position + place.size]
        if is_sound(record, int(place.file) + place.position, place.size):
            yield {"broker": broker} | _row(record, int.from_bytes(record[4:8], "big"))


def is_sound(record: bytes, physical_offset: int, size: int) -> bool:
    """Return true if bytes are a record of that size and place with consistent lengths; other fields are free."""
    if len(record) != size or size < _LEAST:
        return False
    total, magic = struct.unpack_from(">iI", record)
    (physical,) = struct.unpack_from(">q", record, 28)
    if (total, physical) != (size, physical_offset) or magic not in {V1, V2}:
        return False
    (sys_flag,) = struct.unpack_from(">i", record, 36)
    at = 48 + (20 if sys_flag & 16 else 8) + 8 + (20 if sys_flag & 32 else 8) + 12
    if at + 4 > size:
        return False
    (body_length,) = struct.unpack_from(">i", record, at)
    at += 4 + body_length
    if body_length < 0 or at + 3 > size:
        return False
    topic_length = record[at] if magic == V1 else struct.unpack_from(">h", record, at)[0]
    at += (1 if magic == V1 else 2) + topic_length
    if topic_length < 0 or at + 2 > size:
        return False
    (properties_length,) = struct.unpack_from(">h", record, at)
    return bool(properties_length >= 0 and at + 2 + properties_length == size)


def damage(commit_log: Path, all_places: list[RecordPlace], seed: int, times: int = 20) -> list[Damage]:
    """Damage places of a log: heads, sizes, bodies, stretches of zeros or noise over several records."""
    chance = random.Random(seed)
    # The last records stay as they are: damage there would count as an unfinished write.
    chosen = sorted(chance.sample(range(len(all_places) - 50), times))
    found = []
    for number, index in enumerate(chosen):
        place = all_places[index]
        kind, at, data = _spoil(place, number, chance)
        data = data[: _end_of_file(all_places, place.file) - place.position - at]
        with (commit_log / place.file).open("r+b") as file:
            file.seek(place.position + at)
            file.write(data)
        found.append(Damage(place.file, place.position + at, len(data), kind))
    return found


def _end_of_file(all_places: list[RecordPlace], name: str) -> int:
    """Return the end of the last record of a file; the BLANK after it stays."""
    return max(place.position + place.size for place in all_places if place.file == name)


def _spoil(place: RecordPlace, number: int, chance: random.Random) -> tuple[str, int, bytes]:
    """Return kind of damage, its position in the record, and the bytes to write."""
    return (
        ("magic", 4, b"????"),
        ("size", 0, struct.pack(">i", chance.randrange(1 << 31))),
        ("position", 28, struct.pack(">q", chance.randrange(1 << 40))),
        ("body", 88, bytes([chance.randrange(256)])),
        ("zeros", chance.randrange(place.size), bytes(chance.randrange(1, 5_000))),
        ("noise", chance.randrange(place.size), chance.randbytes(chance.randrange(1, 5_000))),
    )[number % 6]


def tear(commit_log: Path, all_places: list[RecordPlace], keep: int = 60) -> RecordPlace:
    """Leave only the first bytes of the last record, as a crash does; return its place."""
    last = all_places[-1]
    with (commit_log / last.file).open("r+b") as file:
        file.seek(last.position + keep)
        file.write(bytes(last.size - keep))
    return last
