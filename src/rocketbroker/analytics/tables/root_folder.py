"""Root folder of a store, for tables that need more than the commit log."""

import logging
from typing import Final

from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.analytics.files.store_root import StoreRoot
from rocketbroker.analytics.queues.queue_proof import has_all_queues
from rocketbroker.common.errors import StoreError

# A folder with one of these is a store's root.
_PARTS: Final = ("commitlog", "consumequeue", "config", "index")

logger = logging.getLogger(__name__)


def root_folder(root: StoreRoot) -> StoreFolder:
    """Return the folder of a store's root; raise :class:`StoreError` if it is not one."""
    folder = open_folder(root)
    if not any(folder.is_folder(part) for part in _PARTS):
        raise StoreError(
            f"{root.shown} is not the root of a RocketMQ store: it contains none of {', '.join(_PARTS)}; only the "
            "tables messages and corrupt_ranges can be read from a commit-log directory alone"
        )
    return folder


def queues_folder(root: StoreRoot, table: str) -> StoreFolder:
    """Return the folder for ``table``, which is read through queues; warn if entries may be missing."""
    folder = root_folder(root)
    if not has_all_queues(folder):
        logger.warning(
            "%s was not stopped cleanly: %s lacks messages whose queue entries did not reach the disk; "
            "select their topics in the table messages to find them",
            root.shown,
            table,
        )
    return folder
