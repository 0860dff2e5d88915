"""Folder of a store, local or remote by its address."""

from rocketbroker.analytics.files.store_files import LocalFolder, StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot


def open_folder(root: StoreRoot) -> StoreFolder:
    """Return the folder of a store, which need not exist."""
    if root.is_local:
        return LocalFolder(root)
    from rocketbroker.analytics.files.remote_files import RemoteFolder

    return RemoteFolder(root)
