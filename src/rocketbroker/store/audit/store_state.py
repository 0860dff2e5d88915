"""How the last broker left a store, and whether one has it open; found out without touching anything."""

import os
import re
from pathlib import Path

from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint, decode_checkpoint
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError

_LOCKS = Path("/proc/locks")


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
