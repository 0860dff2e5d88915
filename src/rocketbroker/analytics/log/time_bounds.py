"""Bounds of the CommitLog stretch that can contain messages of a time range.

The search assumes that store times rise with the offset, as a broker writes them. It reads about twenty records for
each bound, the first of each file, and in a local store one every 16 MiB. Times may go back by up to
``CLOCK_MARGIN_MS``; if they go back by more, the whole log is read.
"""

import logging
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.log_window import log_window
from rocketbroker.codec.message.message_decoder import RECORD_HEADS
from rocketbroker.codec.storefile.record_search import find_record, store_timestamp
from rocketbroker.codec.storefile.store_file import LogWindow

#: A broker's clock may have been set back by this much while it stored messages.
CLOCK_MARGIN_MS: Final = 1000

# A bound is not narrowed below this many bytes: reading them takes no longer.
_NEAR: Final = 64 << 10
# One record of each such stretch is sampled. In a remote store that takes a request, so only some files are sampled.
_SAMPLED: Final = 16 << 20
_REMOTE_FILES: Final = 256
_END: Final = (1 << 63) - 1

logger = logging.getLogger(__name__)


def offsets_of_time(files: Sequence[LogFile], since_ms: int | None, until_ms: int | None) -> tuple[int, int]:
    """Return physical offsets between which every message stored in the time range begins.

    They span the whole log if its store times are not in order.
    """
    if since_ms is None and until_ms is None:
        return 0, _END
    seen: dict[int, int | None] = {}
    low = 0 if since_ms is None else _Bound(files, since_ms - CLOCK_MARGIN_MS, seen).low
    high = _END if until_ms is None else _Bound(files, until_ms + CLOCK_MARGIN_MS, seen).high
    _sample(files, seen)
    if _is_in_order(seen):
        return low, high
    logger.warning(
        "%s: store times go back by more than %d ms, or a file has none; the whole log is read to find a time range",
        files[0].path.rpartition("/")[0],
        CLOCK_MARGIN_MS,
    )
    return 0, _END


def _sample(files: Sequence[LogFile], seen: dict[int, int | None]) -> None:
    """Add sampled store times of all files to ``seen``."""
    is_local = files[0].root.is_local
    for file in files if is_local else files[:: -(-len(files) // _REMOTE_FILES)]:
        with log_window(file) as window:
            for low in range(0, file.data_end if is_local else 1, _SAMPLED):
                _next_time(window, low, min(low + _SAMPLED, file.data_end), seen)


def _next_time(window: LogWindow, low: int, high: int, seen: dict[int, int | None]) -> tuple[int, int] | None:
    """Return position and store time of the first record from ``low`` to below ``high``."""
    position = find_record(window, low, high)
    if position < 0:
        return None
    time_ms = store_timestamp(window.at(position, RECORD_HEADS[3].size))
    seen[window.file.base + position] = time_ms
    return position, time_ms


def _is_in_order(seen: dict[int, int | None]) -> bool:
    newest = 0
    for _, time_ms in sorted(seen.items()):
        if time_ms is None or time_ms < newest - CLOCK_MARGIN_MS:
            return False
        newest = max(newest, time_ms)
    return True


class _Bound:
    """Bounds of the first message stored at ``time_ms`` or later: not before ``low`` and not after ``high``.

    ``seen`` receives the store times read, by physical offset; ``None`` for a file without any.
    """

    def __init__(self, files: Sequence[LogFile], time_ms: int, seen: dict[int, int | None]) -> None:
        self._time_ms = time_ms
        self._seen = seen
        self.low, self.high = files[0].base, _END
        # The first file that begins at the time or later: the message is in the file before, or begins this one.
        number = bisect_left(files, time_ms, key=self._first_time)
        if number < len(files):
            self.high = files[number].base
        if number:
            self._narrow(files[number - 1])

    def _first_time(self, file: LogFile) -> int:
        """Return the store time of a file's first valid record."""
        with log_window(file) as window:
            found = _next_time(window, 0, file.data_end, self._seen)
        if found is None:
            self._seen[file.base] = None
            return _END
        return found[1]

    def _narrow(self, file: LogFile) -> None:
        low, high = 0, file.data_end
        with log_window(file) as window:
            while high - low > _NEAR:
                middle = (low + high) // 2
                found = _next_time(window, middle, high, self._seen)
                if found is not None and found[1] < self._time_ms:
                    low = found[0]
                    continue
                high = middle
                if found is not None:
                    self.high = file.base + found[0]
        self.low = file.base + low
