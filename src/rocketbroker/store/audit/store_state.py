"""State in which the last broker left a store, and true if one has it open; read-only."""

from pathlib import Path

from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.lock_holders import lock_holders


def read_state(config: MessageStoreConfig) -> StoreState:
    """Read the state of the store that ``config`` names."""
    holders = lock_holders(Path(config.store_path_root_dir) / "lock")
    try:
        checkpoint = config.checkpoint_path.read_bytes()
    except OSError:
        checkpoint = None  # the check of the checkpoint reports the fault
    return StoreState.of(config.abort_path.exists() or bool(holders), holders, checkpoint)
