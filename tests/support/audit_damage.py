"""Damage of one kind each to the store of ``audited_store``, and the rule that sees it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.consume_queue_layout import ENTRY
from rocketbroker.codec.storefile.index_file_layout import ENTRY as INDEX_ENTRY
from rocketbroker.codec.storefile.index_file_layout import decode_header, entry_position, slot_position
from tests.support.audited_store import QUEUE, bytes_at, log_place, patch, queue_place
from tests.support.stores import LOG_FILE

QUEUE_OFFSET = 17  # of the message that is damaged
INT64 = Struct(">q")
Damage = Callable[[Path, list[MessageExt]], None]


def victim(queued: list[MessageExt]) -> MessageExt:
    """Return the message to damage."""
    return queued[QUEUE_OFFSET]


def index_file(root: Path) -> Path:
    """Return the first file of the index."""
    return min((root / "index").iterdir())


def in_record(at: int, data: bytes) -> Damage:
    return lambda root, queued: patch(log_place(root, victim(queued).commit_log_offset), data, at)


def in_entry(offset: int = 0, size: int = 0, tags_code: int = 0) -> Damage:
    """Change the fields of a queue entry."""

    def damage(root: Path, queued: list[MessageExt]) -> None:
        place = queue_place(root, QUEUE_OFFSET)
        was = ENTRY.unpack(bytes_at(place, 20))
        patch(place, ENTRY.pack(was[0] + offset, was[1] + size, was[2] + tags_code))

    return damage


def zero_record(root: Path, queued: list[MessageExt]) -> None:
    patch(log_place(root, victim(queued).commit_log_offset), bytes(victim(queued).store_size))


def blank(root: Path, queued: list[MessageExt]) -> None:
    path = root / "commitlog" / f"{0:020d}"
    at = path.read_bytes().rindex(bytes.fromhex("CBD43194"))
    patch((path, at - 4), b"\0\0\0\1")


def remove_log_file(root: Path, queued: list[MessageExt]) -> None:
    (root / "commitlog" / f"{LOG_FILE:020d}").unlink()


def misplaced_entry(root: Path, queued: list[MessageExt]) -> None:
    """Point a queue entry to the message after its own."""
    patch(queue_place(root, QUEUE_OFFSET), bytes_at(queue_place(root, QUEUE_OFFSET + 1), 20))


def beyond(root: Path, queued: list[MessageExt]) -> None:
    patch(queue_place(root, len(queued)), ENTRY.pack(1 << 30, 100, 0))


def missing_queue_file(root: Path, queued: list[MessageExt]) -> None:
    folder = root / "consumequeue" / "Topic1" / "0"
    first = folder / f"{0:020d}"
    shutil.copy(first, folder / f"{4 * 1200:020d}")
    (folder / f"{4 * 1200:020d}").write_bytes(bytes(1200))
    last = max(path for path in folder.iterdir() if int(path.name) < 4800)
    assert last.name == f"{1200:020d}"


def queue_file_size(root: Path, queued: list[MessageExt]) -> None:
    path = max((root / "consumequeue" / QUEUE[0] / str(QUEUE[1])).iterdir())
    os.truncate(path, 1180)


def last_log_file_size(root: Path, queued: list[MessageExt]) -> None:
    path = max((root / "commitlog").iterdir())
    os.truncate(path, LOG_FILE + 10)


def hole(root: Path, queued: list[MessageExt]) -> None:
    patch(queue_place(root, QUEUE_OFFSET), bytes(20))


def lost(root: Path, queued: list[MessageExt]) -> None:
    """Replace a queued message by one of no queue and remove its entry."""
    hole(root, queued)
    patch(log_place(root, victim(queued).commit_log_offset), b"\0\0\0\x04", 36)  # half of a transaction


def repeated(root: Path, queued: list[MessageExt]) -> None:
    """Give a message the queue offset of its predecessor and end the queue before it."""
    last = queued[-1]
    patch(log_place(root, last.commit_log_offset), INT64.pack(last.queue_offset - 1), 20)
    patch(queue_place(root, last.queue_offset), bytes(20))


def out_of_order(root: Path, queued: list[MessageExt]) -> None:
    """Swap the queue offsets of two messages and their entries."""
    one, other = queued[QUEUE_OFFSET : QUEUE_OFFSET + 2]
    entries = [bytes_at(queue_place(root, each.queue_offset), 20) for each in (one, other)]
    for each, queue_offset, entry in ((one, other.queue_offset, entries[0]), (other, one.queue_offset, entries[1])):
        patch(log_place(root, each.commit_log_offset), INT64.pack(queue_offset), 20)
        patch(queue_place(root, queue_offset), entry)


def in_index_entry(number: int, **fields: int) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        place = index_file(root), entry_position(number, 50)
        names = ("key_hash", "phy_offset", "time_diff", "previous")
        was = dict(zip(names, INDEX_ENTRY.unpack(bytes_at(place, 20)), strict=True))
        patch(place, INDEX_ENTRY.pack(*(was | {name: was[name] + by for name, by in fields.items()}).values()))

    return damage


def in_index_slot(root: Path, queued: list[MessageExt]) -> None:
    data = index_file(root).read_bytes()
    slot = next(slot for slot in range(50) if any(data[slot_position(slot, 50) :][:4]))
    patch((index_file(root), slot_position(slot, 50)), bytes(4))


def index_header(root: Path, queued: list[MessageExt]) -> None:
    patch((index_file(root), 0), INT64.pack(1 << 50), 24)  # endPhyOffset


def missing_key(root: Path, queued: list[MessageExt]) -> None:
    """Remove the last two index entries, a key and a tag of the last message, as if never added."""
    path = max((root / "index").iterdir())
    header = decode_header(path.read_bytes())
    for last in (header.index_count - 1, header.index_count - 2):
        key_hash, offset, _, previous = INDEX_ENTRY.unpack(bytes_at((path, entry_position(last, 50)), 20))
        assert offset == header.end_phy_offset
        patch((path, slot_position(key_hash, 50)), previous.to_bytes(4, "big"))
        patch((path, entry_position(last, 50)), bytes(20))
    patch((path, 0), header._replace(index_count=header.index_count - 2).encode())


def config(name: str, text: str) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        (root / "config").mkdir(exist_ok=True)
        (root / "config" / name).write_text(text)

    return damage


def checkpoint(data: bytes) -> Damage:
    def damage(root: Path, queued: list[MessageExt]) -> None:
        (root / "checkpoint").write_bytes(data)

    return damage


OFFSETS = '{"offsetTable":{"%s@group":{%d:%d}}}'

DAMAGE: dict[str, tuple[str, Damage]] = {
    "a body": ("record-crc", in_record(90, b"?")),
    "a checksum": ("record-crc", in_record(8, b"\x11")),
    "totalSize": ("record-length", in_record(3, b"\x01")),
    "bodyLength": ("record-length", in_record(84, b"\x7f")),
    "a magic code": ("record-magic", in_record(4, b"\0")),
    "physicalOffset": ("record-position", in_record(28, b"\1")),
    "a record zeroed": ("log-hole", zero_record),
    "a BLANK": ("blank-size", blank),
    "an entry's size": ("queue-entry-mismatch", in_entry(size=1)),
    "an entry's tags code": ("queue-entry-mismatch", in_entry(tags_code=1)),
    "an entry's offset": ("queue-entry-unreadable", in_entry(offset=1)),
    "an entry below 0": ("queue-entry-unreadable", in_entry(offset=-(1 << 40))),
    "an entry of another message": ("queue-entry-mismatch", misplaced_entry),
    "a record's queue offset": ("queue-entry-mismatch", in_record(20, b"\x01")),
    "a record's queue": ("queue-entry-mismatch", in_record(15, b"\x01")),
    "an entry behind the log": ("queue-entry-beyond-log", beyond),
    "an entry zeroed": ("message-not-queued", hole),
    "message and entry": ("queue-offset-missing", lost),
    "a queue offset twice": ("queue-offset-repeated", repeated),
    "queue offsets exchanged": ("queue-offset-order", out_of_order),
    "a queue file": ("queue-file-missing", missing_queue_file),
    "a queue file's size": ("queue-file-size", queue_file_size),
    "a log file": ("log-file-missing", remove_log_file),
    "a log file's size": ("log-file-size", last_log_file_size),
    "a key hash": ("index-entry-mismatch", in_index_entry(5, key_hash=1)),
    "a store time": ("index-entry-mismatch", in_index_entry(5, time_diff=3)),
    "an index entry's offset": ("index-entry-unreadable", in_index_entry(5, phy_offset=1)),
    "a chain": ("index-chain", in_index_entry(150, previous=-1)),
    "a slot": ("index-chain", in_index_slot),
    "an index header": ("index-header", index_header),
    "a key": ("index-missing-key", missing_key),
    "a table": ("config-damaged", config("topics.json", '{"topicConfigTable":')),
    "an empty table": ("config-damaged", config("topics.json", "")),
    "a table's name": ("config-damaged", config("consumerOffset.json", '{"offsetTablf":{}}')),
    "a consumer offset": ("consumer-offset-beyond-queue", config("consumerOffset.json", OFFSETS % (*QUEUE, 1_000))),
    "a short checkpoint": ("checkpoint-damaged", checkpoint(bytes(20))),
    "a checkpoint below 0": ("checkpoint-damaged", checkpoint(StoreCheckpoint(-1).encode())),
}


WARNINGS: dict[str, tuple[str, Damage]] = {
    "a backup": ("config-backup-damaged", config("topics.json.bak", "{")),
    "a checkpoint ahead": ("checkpoint-ahead", checkpoint(StoreCheckpoint(1 << 50).encode())),
    "no queues": ("queue-missing", lambda root, queued: shutil.rmtree(root / "consumequeue" / QUEUE[0])),
}
