"""How the last broker left a store, and whether one has it open; found out without touching anything."""

import os
import re
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint, decode_checkpoint
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError

# Messages of one moment may lie on both sides of a flush.
_SAFETY_MS = 3000
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class StoreState:
    """``unclean`` when the abort file is there, ``holders`` the processes that have the store locked.

    What was stored three seconds before the times of the checkpoint was on disk when it was written, after a clean stop
    all was.
    """

    unclean: bool
    holders: tuple[int, ...]
    checkpoint: StoreCheckpoint

    @property
    def is_open(self) -> bool:
        """Whether a broker has the store open."""
        return bool(self.holders)

    def is_known(self, store_timestamp: int) -> bool:
        """Whether log and queues had a message of this store time (ms) on disk for certain."""
        found = min(self.checkpoint.physic_msg_timestamp, self.checkpoint.logics_msg_timestamp)
        return not self.unclean or store_timestamp <= found - _SAFETY_MS

    def is_index_known(self, store_timestamp: int) -> bool:
        """Whether the index had it, too."""
        known = self.is_known(store_timestamp)
        return known and (not self.unclean or store_timestamp <= self.checkpoint.index_msg_timestamp - _SAFETY_MS)


def read_state(config: MessageStoreConfig) -> StoreState:
    """The state of the store that ``config`` names."""
    holders = lock_holders(Path(config.store_path_root_dir) / "lock")
    return StoreState(config.abort_path.exists() or bool(holders), holders, _checkpoint(config.checkpoint_path))


def _checkpoint(path: Path) -> StoreCheckpoint:
    try:
        return decode_checkpoint(path.read_bytes())
    except (OSError, CodecError):
        return StoreCheckpoint()  # as after a first start: nothing is known; who checks it says what is wrong


def lock_holders(path: Path) -> tuple[int, ...]:
    """Ids of the processes that have a file locked, of either kind of lock; 0 stands for one that cannot be seen.

    The kernel's list is read, since trying the lock would take it for a moment.
    """
    try:
        found = path.stat()
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return ()
    wanted = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
    pattern = re.compile(rf"(?:FLOCK|POSIX|OFDLCK) .* (-?\d+) {re.escape(wanted)} ")
    return tuple(sorted({max(int(match[1]), 0) for line in lines if (match := pattern.search(line))}))
