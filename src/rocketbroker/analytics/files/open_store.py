"""Opens the folder of a store by what its address says."""

from rocketbroker.analytics.files.store_files import LocalFolder, StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot


def open_folder(root: StoreRoot) -> StoreFolder:
    """Open the folder of a store, whether there is one or not."""
    if root.is_local:
        return LocalFolder(root)
    from rocketbroker.analytics.files.remote_files import RemoteFolder

    return RemoteFolder(root)
