"""Reads a commit log that grows by a plain loop over struct, sharing no code with the package."""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
_HEAD = struct.Struct(">iIiiiqqi")
_ENTRY = struct.Struct(">qiq")
ENTRY_SIZE = 20


class Place(NamedTuple):
    """Topic, queue and queue offset of a message."""

    topic: str
    queue_id: int
    queue_offset: int


class Found(NamedTuple):
    """A record of the log; ``physical_offset`` and ``size`` in bytes, times in ms since 1970."""

    place: Place
    physical_offset: int
    size: int
    body: bytes
    properties: bytes
    born_timestamp: int
    store_timestamp: int

    def property(self, name: str) -> str | None:
        """Return the value of a property, ``None`` if it is absent."""
        pairs = (pair.partition(b"\x01") for pair in self.properties.split(b"\x02"))
        return next((value.decode() for key, _, value in pairs if key == name.encode()), None)


@dataclass(slots=True)
class CommitLogFollower:
    """Reader that continues from its last position up to the first byte without a sound record.

    A killed broker may leave a torn record at the end; the next broker continues at the same position.
    """

    store: Path
    file_size: int
    end: int = 0
    records: dict[Place, Found] = field(default_factory=dict)

    def read_on(self) -> list[Found]:
        """Return the new records; a repeated queue offset or a gap is an error."""
        new = list(self._walk())
        for record in new:
            topic, queue_id, offset = record.place
            assert record.place not in self.records, f"{record} has the queue offset of {self.records[record.place]}"
            before = Place(topic, queue_id, offset - 1)
            assert offset == 0 or before in self.records, f"{record} follows a gap: nothing is at {offset - 1}"
            self.records[record.place] = record
        return new

    def ends(self) -> dict[tuple[str, int], int]:
        """Return the queue offset after the last message of each queue."""
        ends: dict[tuple[str, int], int] = {}
        for topic, queue_id, offset in self.records:
            ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), offset + 1)
        return ends

    def _walk(self) -> Iterator[Found]:
        while (data := self._rest_of_file()) is not None:
            file_end = self.end + len(data)
            at = 0
            while (found := _record(data, at, self.end)) is not None:
                yield found
                at += found.size
                self.end += found.size
            if not _is_blank(data, at):
                return
            self.end = file_end

    def _rest_of_file(self) -> bytes | None:
        begin = self.end - self.end % self.file_size
        path = self.store / "commitlog" / f"{begin:020}"
        if not path.is_file():
            return None
        with path.open("rb") as file:
            file.seek(self.end - begin)
            return file.read()


def _is_blank(data: bytes, at: int) -> bool:
    if at == len(data):
        return True
    return len(data) - at >= 8 and struct.unpack_from(">iI", data, at) == (len(data) - at, BLANK)


def _record(data: bytes, at: int, physical_offset: int) -> Found | None:
    if len(data) - at < _HEAD.size:
        return None
    size, magic, crc, queue_id, _, queue_offset, physical, sys_flag = _HEAD.unpack_from(data, at)
    if magic not in {V1, V2} or physical != physical_offset or not 0 < size <= len(data) - at:
        return None
    record = data[at : at + size]
    stored_at = 48 + (20 if sys_flag & 16 else 8)
    body_at = stored_at + 8 + (20 if sys_flag & 32 else 8) + 12
    (length,) = struct.unpack_from(">i", record, body_at)
    body = record[body_at + 4 : body_at + 4 + length]
    if zlib.crc32(body) & 0x7FFFFFFF != crc:
        return None
    topic_at = body_at + 4 + length
    wide = magic == V2
    topic_length = int.from_bytes(record[topic_at : topic_at + 1 + wide], "big")
    topic_at += 1 + wide
    properties_at = topic_at + topic_length
    topic = record[topic_at:properties_at].decode()
    properties = record[properties_at + 2 :]
    if int.from_bytes(record[properties_at : properties_at + 2], "big") != len(properties):
        return None  # torn after its body
    place = Place(topic, queue_id, queue_offset)
    return Found(place, physical_offset, size, body, properties, _time(record, 40), _time(record, stored_at))


def _time(record: bytes, at: int) -> int:
    return int.from_bytes(record[at : at + 8], "big")


def check_queues(follower: CommitLogFollower) -> int:
    """Check each ConsumeQueue entry with the record of its queue offset; return the number of entries.

    Entries may be missing at the end of a queue whose broker was killed before the dispatch.
    """
    count = 0
    for folder in sorted((follower.store / "consumequeue").glob("*/*")):
        topic, queue_id = folder.parent.name, int(folder.name)
        for path in sorted(folder.iterdir()):
            data = path.read_bytes()
            offset = int(path.name) // ENTRY_SIZE
            for number, (physical, size, _) in enumerate(
                _ENTRY.iter_unpack(data[: len(data) // ENTRY_SIZE * ENTRY_SIZE])
            ):
                if size == 0:
                    break
                record = follower.records.get(Place(topic, queue_id, offset + number))
                assert record is not None, f"{path}: entry {offset + number} has no message"
                assert (record.physical_offset, record.size) == (physical, size), f"{path}: entry {offset + number}"
                count += 1
    return count
