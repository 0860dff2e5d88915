"""Mixed stores for measuring analytics: written message by message, or grown from copies of one full segment."""

import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

import numpy as np
import numpy.typing as npt
import typer

from bench.store_generator import PagedFiles
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint
from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.store_file import offset_to_file_name
from tests.support.mixed_store import MixedStore
from tests.support.store_damage import damage, places, tear

SEGMENT: Final = 1 << 30
QUEUE_FILE: Final = 6_000_000
_SAMPLE: Final = 20_000
_QUEUE_OFFSET_AT, _PHYSICAL_OFFSET_AT, _SYS_FLAG_AT, _BORN_AT, _STORED_AT = 20, 28, 36, 40, 56
_V6_EXTRA: Final = 12
_SCHEDULED: Final = "SCHEDULE_TOPIC_XXXX"

Longs = npt.NDArray[np.int64]


class GrownStore:
    """Copies of the first segment of a store in a row.

    Args:
        base: a store whose first segment is full.
        segment: size of its log files in bytes.
    """

    def __init__(self, base: Path, segment: int) -> None:
        self._base = base
        self._segment = segment
        queues = {folder: _entries(folder, segment) for folder in _queue_folders(base)}
        # Some queues have their first message after the segment.
        self._queues = {folder: entries for folder, entries in queues.items() if len(entries)}
        self.messages_each = sum(map(len, self._queues.values()))

    def write(self, into: Path, segments: int) -> None:
        """Write a store of ``segments`` segments, as left by a clean stop."""
        # The consumer offsets say nothing about the copied segments.
        shutil.copytree(self._base / "config", into / "config", ignore=shutil.ignore_patterns("consumerOffset*"))
        data = np.fromfile(self._base / "commitlog" / offset_to_file_name(0), np.uint8)
        stored = [_stored_at(data, entries["commit_log_offset"].astype(np.int64)) for entries in self._queues.values()]
        times = np.concatenate([_longs(data, at) for at in stored])
        span = int(times.max() - times.min()) + 1
        log = into / "commitlog"
        log.mkdir(parents=True)
        for number in range(segments):
            data.tofile(log / offset_to_file_name(number * self._segment))
            for entries, at in zip(self._queues.values(), stored, strict=True):
                starts = entries["commit_log_offset"].astype(np.int64)
                _add(data, starts + _PHYSICAL_OFFSET_AT, self._segment)
                _add(data, starts + _QUEUE_OFFSET_AT, len(starts))
                _add(data, starts + _BORN_AT, span)
                _add(data, at, span)
        for folder, entries in self._queues.items():
            self._write_queue(into / folder.relative_to(self._base), entries, segments, span)
        last = int(times.max()) + (segments - 1) * span
        (into / "checkpoint").write_bytes(StoreCheckpoint(last, last, last).encode())

    def _write_queue(self, folder: Path, entries: npt.NDArray[Any], segments: int, span: int) -> None:
        # Entries of delayed messages hold the due time instead of the tags hash.
        later = span if folder.parent.name == _SCHEDULED else 0
        with closing(PagedFiles(folder, QUEUE_FILE)) as files:
            for number in range(segments):
                moved = entries.copy()
                moved["commit_log_offset"] += number * self._segment
                moved["tags_code"] += number * later
                files.write(number * len(entries) * CQ_STORE_UNIT_SIZE, memoryview(moved.tobytes()))


def write_mixed(root: Path, segments: int, segment: int = SEGMENT) -> int:
    """Write a mixed store of ``segments`` full segments; return its number of messages."""
    with TemporaryDirectory(prefix="rocketbroker-grow-", dir=root.parent) as folder:
        base = Path(folder) / "base"
        MixedStore(
            base,
            _enough_for(segment, Path(folder) / "sample"),
            mapped_file_size_commit_log=segment,
            mapped_file_size_consume_queue=QUEUE_FILE,
            message_index_enable=False,
        ).make()
        grown = GrownStore(base, segment)
        grown.write(root, segments)
    return grown.messages_each * segments


def _enough_for(segment: int, sample: Path) -> int:
    """Return a number of messages that is sure to fill a segment."""
    MixedStore(sample, _SAMPLE, message_index_enable=False).make()
    entries = [_entries(folder, 1 << 62) for folder in _queue_folders(sample)]
    mean = sum(int(each["size"].sum()) for each in entries) / _SAMPLE
    return int(segment / mean * 1.05) + 1000


def _queue_folders(root: Path) -> Iterator[Path]:
    yield from sorted(path for path in (root / "consumequeue").glob("*/*") if path.is_dir())


def _entries(folder: Path, below: int) -> npt.NDArray[Any]:
    """Return the queue entries whose log offset is below a limit."""
    files = sorted(folder.iterdir())
    entries = np.concatenate([np.fromfile(path, CONSUME_QUEUE_ENTRY) for path in files])
    entries = entries.astype(CONSUME_QUEUE_ENTRY)  # concatenate returns the machine's byte order
    return entries[(entries["size"] > 0) & (entries["commit_log_offset"] < below)]


def _stored_at(data: npt.NDArray[np.uint8], starts: Longs) -> Longs:
    """Return the positions of the store times, which follow the born host (IPv4 or IPv6)."""
    flags = data[starts + _SYS_FLAG_AT + 3]
    return starts + _STORED_AT + np.where(flags & 16, _V6_EXTRA, 0)


def _longs(data: npt.NDArray[np.uint8], at: Longs) -> Longs:
    found: Longs = data[at[:, None] + np.arange(8)].view(">i8")[:, 0].astype(np.int64)
    return found


def _add(data: npt.NDArray[np.uint8], at: Longs, more: int) -> None:
    values = (_longs(data, at) + more).astype(">i8")
    data[at[:, None] + np.arange(8)] = values.view(np.uint8).reshape(-1, 8)


def analytics_store(
    root: Annotated[Path, typer.Argument(help="The store's folder, which must not exist.", resolve_path=True)],
    gib: Annotated[int, typer.Option(min=1, help="Segments of 1 GiB.")] = 1,
    messages: Annotated[int, typer.Option(min=0, help="So many messages instead, with an index.")] = 0,
    seed: Annotated[int, typer.Option(help="Of all that is chance, with --messages.")] = 1,
    segment_mib: Annotated[int, typer.Option(min=1, help="Size of a commit-log file, with --messages.")] = 64,
    damaged: Annotated[int, typer.Option(min=0, help="Damage so many places afterwards.")] = 0,
) -> None:
    """Generate a mixed store."""
    if root.exists():
        raise typer.BadParameter(f"{root} is there already")
    begun = time.monotonic()
    if messages:
        MixedStore(root, messages, seed, mapped_file_size_commit_log=segment_mib << 20).make()
    else:
        messages = write_mixed(root, gib)
    print(f"{messages:,} messages in {time.monotonic() - begun:.0f} s")
    if damaged:
        log = root / "commitlog"
        records = list(places(log))
        for each in damage(log, records, seed, damaged):
            print(f"{each.file} {each.position} +{each.length} {each.kind}")
        print(f"torn at {tear(log, records).position}")
