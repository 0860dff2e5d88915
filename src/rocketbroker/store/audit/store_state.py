"""How the last broker left a store, and whether one has it open; found out without touching anything."""

from pathlib import Path

from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint, decode_checkpoint
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError
from rocketbroker.common.lock_holders import lock_holders


def read_state(config: MessageStoreConfig) -> StoreState:
    """The state of the store that ``config`` names."""
    holders = lock_holders(Path(config.store_path_root_dir) / "lock")
    return StoreState(config.abort_path.exists() or bool(holders), holders, _checkpoint(config.checkpoint_path))


def _checkpoint(path: Path) -> StoreCheckpoint:
    try:
        return decode_checkpoint(path.read_bytes())
    except (OSError, CodecError):
        return StoreCheckpoint()  # as after a first start: nothing is known; who checks it says what is wrong
