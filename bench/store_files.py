"""Writers for the files of a generated store: consecutive files of one size, and index files."""

import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.record_template import Numbers
from rocketbroker.codec.storefile.store_file import offset_to_file_name
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.index.index_file import IndexFile


class PagedFiles:
    """Writer of consecutive files of one size, from the first to the last.

    Args:
        folder: folder of the files; created if missing.
        file_size: size of each file in bytes; no file may exist yet.
    """

    def __init__(self, folder: Path, file_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._file_size = file_size
        self._fd = -1
        self._start = -1

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset; never to a file before the current one."""
        while data:
            position = offset % self._file_size
            self._select(offset - position)
            written = os.pwrite(self._fd, data[: self._file_size - position], position)
            offset, data = offset + written, data[written:]

    def _select(self, start: int) -> None:
        if start == self._start:
            return
        self.close()
        path = self._folder / offset_to_file_name(start)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._start = start
        os.ftruncate(self._fd, self._file_size)

    def close(self) -> None:
        """Sync and close the current file."""
        if self._fd >= 0:
            os.fdatasync(self._fd)
            os.close(self._fd)
            self._fd = -1


class IndexWriter:
    """Writer of index files; it begins a new file when the last one is full.

    Args:
        config: settings with their folder and sizes.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        config.index_dir.mkdir(parents=True, exist_ok=True)
        self._config = config
        self._file: IndexFile | None = None
        self._last_name = 0

    def enter(self, hashes: npt.NDArray[np.int32], offsets: Numbers, timestamps: Numbers) -> None:
        """Add the keys of messages, oldest first.

        Args:
            hashes: key hashes, shape (n, keys of each).
            offsets: CommitLog offsets of the messages, shape (n,).
            timestamps: store times of the messages in ms, shape (n,).
        """
        keys = hashes.shape[1]
        all_hashes, all_offsets, all_times = hashes.ravel(), np.repeat(offsets, keys), np.repeat(timestamps, keys)
        done = 0
        while done < len(all_hashes):
            file = self._with_room(int(all_times[done]))
            end = done + min(file.room, len(all_hashes) - done)
            file.put_keys(all_hashes[done:end], all_offsets[done:end], all_times[done:end])
            done = end

    def _with_room(self, timestamp: int) -> IndexFile:
        if self._file is not None and self._file.room:
            return self._file
        self.close()
        text = time.strftime("%Y%m%d%H%M%S", time.localtime(timestamp // 1000)) + f"{timestamp % 1000:03d}"
        # Names must sort by creation, even if two files fill up within a millisecond.
        self._last_name = max(int(text), self._last_name + 1)
        config = self._config
        path = config.index_dir / str(self._last_name)
        self._file = IndexFile(path, config.max_hash_slot_num, config.max_index_num)
        return self._file

    def close(self) -> None:
        """Sync and close the current file."""
        if self._file is not None:
            self._file.sync()
            self._file.close()
            self._file = None
