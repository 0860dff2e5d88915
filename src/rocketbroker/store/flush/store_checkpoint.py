"""Store times up to which the files of a store are on disk (org.apache.rocketmq.store.StoreCheckpoint)."""

import threading
from pathlib import Path

from rocketbroker.codec.storefile.checkpoint_layout import CHECKPOINT_FILE_SIZE, decode_checkpoint
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint as CheckpointLayout
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem

# RocketMQ steps back this far: messages of one millisecond may be on both sides of a flush. After the clock was set
# back, keys of messages stored since may wait while the time of the index is taken.
_SAFETY_MS = 3000
_DAY_MS = 24 * 3600 * 1000
_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


class StoreCheckpoint:
    """Store times in ms up to which CommitLog, queues and index are on disk, kept in the ``checkpoint`` file."""

    def __init__(self, path: Path, file_system: FileSystem = LOCAL) -> None:
        self._file_system = file_system
        self._path = path
        self.layout = CheckpointLayout()
        # The file may hold a later time than ``layout``, because the clock was set back.
        self.says_too_much = False
        # Several threads set times, each a different one.
        self._lock = threading.Lock()
        # Held while the file is written, so that no thread overwrites newer times with older ones.
        self._writing = threading.Lock()

    def load(self, now_ms: int | None = None) -> None:
        """Read the file if it exists.

        Args:
            now_ms: current time; stored times more than a day later are invalid.

        Raises:
            StoreError: The file is unreadable or invalid; without it the whole store is checked.
        """
        try:
            data = self._path.read_bytes()
            layout = decode_checkpoint(data) if data else CheckpointLayout()
        except FileNotFoundError:
            return
        except (OSError, CodecError) as error:
            raise StoreError(f"cannot read {self._path} ({error})") from error
        if len(data) not in {0, CHECKPOINT_FILE_SIZE}:
            raise StoreError(f"{self._path} has {len(data)} bytes instead of {CHECKPOINT_FILE_SIZE}")
        if min(layout[:3]) < 0 or (now_ms is not None and max(layout[:3]) > now_ms + _DAY_MS):
            raise StoreError(f"{self._path} has invalid times: {layout}")
        self.layout = layout

    def advance(self, **timestamps: int) -> None:
        """Set times by the names of the layout's fields; zero means nothing stored, and is ignored.

        When the clock is set back, times go back with it. Messages stored afterwards have earlier times than what is on
        disk, and would be taken to be on disk too. No other time stays later than one that went back.
        """
        given = {name: at for name, at in timestamps.items() if at}
        with self._lock:
            before, layout = self.layout, self.layout._replace(**given)
            back = [at for name, at in given.items() if at < getattr(before, name)]
            if back:
                times = {name: min(getattr(layout, name), *back) for name in _TIMES}
                layout = layout._replace(**times)
                self.says_too_much = True
            self.layout = layout

    def min_timestamp(self, *, with_index: bool) -> int:
        """Return the time before which all messages are on disk in CommitLog and queues (and the index)."""
        layout = self.layout
        found = min(layout.physic_msg_timestamp, layout.logics_msg_timestamp)
        return max((min(found, layout.index_msg_timestamp) if with_index else found) - _SAFETY_MS, 0)

    def save(self) -> None:
        """Write and sync the file (blocks).

        Raises:
            OSError: The file could not be written.
        """
        with self._writing:
            said_too_much = self.says_too_much
            self.says_too_much = False
            try:
                fd = self._file_system.open(self._path)
                try:
                    self._file_system.write(fd, 0, self.layout.encode())
                    self._file_system.sync(fd)
                finally:
                    self._file_system.close(fd)
            except OSError:
                self.says_too_much |= said_too_much
                raise
