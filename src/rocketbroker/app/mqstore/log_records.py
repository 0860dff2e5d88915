"""The records of a CommitLog one by one, for display."""

from collections.abc import Iterator, Sequence
from typing import Final

from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.storefile.log_walk import FileWalk
from rocketbroker.codec.storefile.record_search import Found, find_record, wrong_body
from rocketbroker.codec.storefile.store_file import LogWindow
from rocketbroker.common.local_file import CommitLogFile, open_commit_log

#: A record and true if its body matches its checksum, or physical offset and length of a range without a record.
LogItem = tuple[MessageExt, bool] | tuple[int, int]

# Often only the first records are read.
_BLOCK: Final = 256 << 10


def log_items(files: Sequence[CommitLogFile], start: int) -> Iterator[LogItem]:
    """Yield the records and damaged ranges of the log from the first record at or after ``start``.

    Args:
        files: the files by offset.
        start: a physical offset.

    Raises:
        StoreError: A file cannot be read.
    """
    for file in files:
        if file.data_end and file.base + file.data_end > start:
            with open_commit_log(file) as source:
                yield from _file_items(LogWindow(source, file, _BLOCK), max(start - file.base, 0))


def _file_items(window: LogWindow, position: int) -> Iterator[LogItem]:
    base, data_end = window.file.base, window.file.data_end
    if position:
        position = find_record(window, position, data_end)
    walk = FileWalk(window, position, data_end)
    while position >= 0:
        walk.position = position
        for stretch in walk:
            for number in range(len(stretch)):
                record = stretch[number]
                yield decode_record(record), not wrong_body(record)
        position = -1
        if walk.found is Found.BROKEN:
            position = walk.next_record(data_end)
            yield base + walk.position, (position if position >= 0 else data_end) - walk.position
