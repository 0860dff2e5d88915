"""The folder of a store for tables that need more of it than the commit log."""

from typing import Final

from rocketbroker.analytics.open_store import open_folder
from rocketbroker.analytics.store_files import StoreFolder
from rocketbroker.analytics.store_root import StoreRoot
from rocketbroker.common.errors import StoreError

# One of these makes a folder a store's root.
_PARTS: Final = ("commitlog", "consumequeue", "config", "index")


def root_folder(root: StoreRoot) -> StoreFolder:
    """The folder of a store's root.

    Raises:
        StoreError: it is none; a commit-log directory by itself is not enough.
    """
    folder = open_folder(root)
    if not any(folder.is_folder(part) for part in _PARTS):
        raise StoreError(
            f"{root.shown} is no root of a RocketMQ store: a directory with {', '.join(_PARTS)} in it is expected, "
            "since all tables but messages and corrupt_ranges need more than the commit log"
        )
    return folder
