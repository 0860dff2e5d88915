"""Cases timed without Spark, each in its own process so that its memory is measured alone.

    python -m bench.analytics_cases NAME STORE

prints one line of JSON: messages delivered, wall and CPU seconds, peak resident memory in MiB.
"""

import json
import mmap
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rocketbroker.analytics import Selection, read_store
from rocketbroker.analytics.files.commit_log_files import log_window
from rocketbroker.analytics.jobs.queue_traffic import decoded_traffic, traffic_by_minute
from rocketbroker.analytics.log.split import plan_splits
from rocketbroker.codec.storefile.dtypes import CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.store_file import LogWindow, offset_to_file_name
from tests.support.commit_log_writer import CommitLogWriter

_V1, _V2 = 0xDAA320A7, 0xDAA320AB
_SIZE_MAGIC: Final = Struct(">iI")
_INT, _LONG = Struct(">i"), Struct(">q")


def pruned_loop(root: Path) -> int:
    """Read the columns ``PRUNED`` into lists by a plain loop and return the number of messages."""
    topics, queue_ids, stored, sizes = list[str](), list[int](), list[int](), list[int]()
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        at, end = 0, len(data)
        while at + 8 <= end:
            size, magic = _SIZE_MAGIC.unpack_from(data, at)
            if magic not in {_V1, _V2}:
                break
            flag = data[at + 39]
            stored_at = at + (68 if flag & 16 else 56)
            body_at = stored_at + (40 if flag & 32 else 28)
            topic_at = body_at + 4 + _INT.unpack_from(data, body_at)[0]
            if magic == _V1:
                topics.append(data[topic_at + 1 : topic_at + 1 + data[topic_at]].decode())
            else:
                topics.append(data[topic_at + 2 : topic_at + 2 + (data[topic_at] << 8 | data[topic_at + 1])].decode())
            queue_ids.append(_INT.unpack_from(data, at + 12)[0])
            stored.append(_LONG.unpack_from(data, stored_at)[0])
            sizes.append(size)
            at += size
        data.close()
    return len(sizes)


def time_bounds(root: Path) -> tuple[int, int]:
    """Return the store times (ms) of the first message and, from the checkpoint, of the last one."""
    with min((root / "commitlog").iterdir()).open("rb") as file:
        head = file.read(76)
    first = _LONG.unpack_from(head, 68 if head[39] & 16 else 56)[0]
    return first, _LONG.unpack_from((root / "checkpoint").read_bytes(), 0)[0]


_BUFFER: Final = 8 << 20
_WHOLE: Final = 1 << 62
#: Columns of the record head, and their names in a record.
HEAD: Final = ("queue_id", "queue_offset", "physical_offset", "store_timestamp", "sys_flag", "size")
_HEAD_FIELDS: Final = ("queue_id", "queue_offset", "physical_offset", "store_timestamp", "sys_flag", "total_size")
#: Columns that most jobs read.
PRUNED: Final = ("topic", "queue_id", "store_timestamp", "size")


def read(root: Path) -> int:
    """Read all written bytes of the log into one buffer without decoding a message."""
    buffer = memoryview(bytearray(_BUFFER))
    for split in plan_splits(str(root), _WHOLE):
        with Path(split.file.path).open("rb", buffering=0) as file:
            position = 0
            while position < split.high:
                position += os.preadv(file.fileno(), [buffer[: split.high - position]], position)
    return 0


def headers(root: Path) -> Callable[[], int]:
    """Return a case that decodes record heads; it reads the queues with their offsets before the clock starts."""
    splits = plan_splits(str(root), _WHOLE)
    entries = np.concatenate([_entries(folder) for folder in (root / "consumequeue").glob("*/*")])
    entries = entries[np.argsort(entries["commit_log_offset"])]
    offsets, sizes = entries["commit_log_offset"].astype(np.int64), entries["size"].astype(np.int64)

    def decode() -> int:
        count = 0
        for split in splits:
            low, high = np.searchsorted(offsets, (split.file.base, split.file.base + split.high))
            starts = offsets[low:high] - split.file.base
            with log_window(split.file, split.high) as window:
                for records in _windows(window, starts, starts + sizes[low:high]):
                    columns = [_native(records.field(name)) for name in _HEAD_FIELDS]
                    count += len(columns[0])
        return count

    return decode


def _native(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(values.dtype.newbyteorder("="))


def _windows(window: LogWindow, starts: Any, ends: Any) -> Iterator[Records]:
    done = 0
    while done < len(starts):
        window.load(int(starts[done]), int(ends[done] - starts[done]))
        until = int(np.searchsorted(ends, window.end, side="right"))
        yield Records(window.file.base + window.start, window.array(), starts[done:until] - window.start)
        done = until


def _entries(folder: Path) -> npt.NDArray[Any]:
    found = np.concatenate([np.fromfile(path, CONSUME_QUEUE_ENTRY) for path in sorted(folder.iterdir())])
    return found[found["size"] > 0]


def _counted(root: Path, columns: Sequence[str] | None, selection: Selection | None = None) -> int:
    return sum(batch.num_rows for batch in read_store(str(root), columns, selection=selection or Selection()))


def one_percent(root: Path) -> tuple[int, int]:
    """Return begin and end (ms) of one hundredth of the store's time span, starting in its middle."""
    first, last = time_bounds(root)
    middle = (first + last) // 2
    return middle, middle + max((last - first) // 100, 1)


def _in_one_percent(root: Path) -> int:
    since, until = one_percent(root)
    return _counted(root, PRUNED, Selection(since_ms=since, until_ms=until))


def _messages(traffic: pa.Table) -> int:
    return int(pc.sum(traffic.column("messages")).as_py())


#: Files of the log that ``poll`` has unread, and how often it asks for the end.
POLLED_FILES: Final = 1_000
POLLS: Final = 100
_FILE_SIZE: Final = 1 << 30


def poll(root: Path) -> Callable[[], int]:
    """Return a case that asks a stream for its end while it has the whole log to read; files are sparse, but the last.

    It counts no messages.
    """
    # Imported here: the other cases are measured without PySpark.
    from pyspark.sql.streaming.datasource import ReadAllAvailable

    from rocketbroker.analytics.spark.rocketmq_store import RocketMQStore

    sparse = Path(f"{root}-sparse")
    if not sparse.exists():
        writer = CommitLogWriter(sparse, _FILE_SIZE, end=(POLLED_FILES - 1) * _FILE_SIZE)
        writer.append_many(1_000)
        for base in range(0, (POLLED_FILES - 1) * _FILE_SIZE, _FILE_SIZE):
            path = writer.directory / offset_to_file_name(base)
            path.touch()
            os.truncate(path, _FILE_SIZE)
    source = RocketMQStore({"path": str(sparse)})
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()

    def ask() -> int:
        for _ in range(POLLS):
            reader.latestOffset(start, ReadAllAvailable())
        return 0

    return ask


#: Each case prepares the store before the clock starts and returns the function to time.
CASES: Final[dict[str, Callable[[Path], Callable[[], int]]]] = {
    "read": lambda root: lambda: read(root),
    "headers": headers,
    "headers_walk": lambda root: lambda: _counted(root, HEAD),
    "pruned": lambda root: lambda: _counted(root, PRUNED),
    "pruned_loop": lambda root: lambda: pruned_loop(root),
    "full": lambda root: lambda: _counted(root, None),
    "time_1pct": lambda root: lambda: _in_one_percent(root),
    "traffic_decode": lambda root: lambda: _messages(decoded_traffic(str(root))),
    "traffic_queues": lambda root: lambda: _messages(traffic_by_minute(str(root))),
    "poll": poll,
}


def main() -> int:
    """Run one case and return the exit status."""
    name, root = sys.argv[1], Path(sys.argv[2])
    tell(name, CASES[name](root))
    return 0


def tell(name: str, timed: Callable[[], int]) -> None:
    """Time a case of this process and print its line."""
    timed()  # warm-up: libraries load modules at first use
    before, begun = _cpu(), time.perf_counter()
    messages = timed()
    wall, cpu = time.perf_counter() - begun, _cpu() - before
    print(json.dumps({"name": name, "messages": messages, "wall": wall, "cpu": cpu, "peak": _peak_mib()}))


def _peak_mib() -> float:
    # getrusage would include the process that this one was forked from.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
