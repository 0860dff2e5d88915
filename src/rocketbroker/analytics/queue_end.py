"""Where queues end, by their files: told without a look at the messages."""

from bisect import bisect_left
from collections.abc import Iterator
from typing import Final

from rocketbroker.analytics.store_files import StoreFolder, opened
from rocketbroker.analytics.tables.queue_files import ENTRIES
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, CQ_STORE_UNIT_SIZE
from rocketbroker.codec.storefile.mapped_file_name import file_name_to_offset
from rocketbroker.common.errors import CodecError

# Where the size stands in an entry of either kind.
_SIZE_AT: Final = 8
_UNITS: Final = {kind: entry.itemsize for kind, entry in ENTRIES.items()}


def queue_end(folder: StoreFolder, topic: str, queue_id: int) -> int | None:
    """The queue offset behind a queue's last message, found by some twenty reads; ``None`` if there is no such queue.

    A file is searched as one in which nothing follows a place that was not written.
    """
    ends = [_end(folder, f"{kind}/{topic}/{queue_id}", unit) for kind, unit in _UNITS.items()]
    return max((end for end in ends if end is not None), default=None)


def _end(folder: StoreFolder, where: str, unit: int) -> int | None:
    for base, path, count in sorted(_files(folder, where, unit), reverse=True):
        with opened(folder, path) as file:
            written = bisect_left(range(count), True, key=lambda n: not any(file.read_at(n * unit + _SIZE_AT, 4)))
            if written and unit == CQ_STORE_UNIT_SIZE:
                return base // unit + written
            if written:
                *_, first, messages, _, _ = BATCH_ENTRY.unpack(file.read_at((written - 1) * unit, unit))
                return int(first + messages)
    return 0 if folder.is_folder(where) else None


def _files(folder: StoreFolder, where: str, unit: int) -> Iterator[tuple[int, str, int]]:
    for name, size in folder.files(where).items():
        try:
            yield file_name_to_offset(name), f"{where}/{name}", size // unit
        except CodecError:
            continue  # a draft, or a damaged file that a broker set aside
