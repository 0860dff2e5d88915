"""The folder of a store for tables that need more of it than the commit log."""

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
    """Return the folder of a store's root.

    Raises:
        StoreError: it is not a store's root; a commit-log directory alone is not enough.
    """
    folder = open_folder(root)
    if not any(folder.is_folder(part) for part in _PARTS):
        raise StoreError(
            f"{root.shown} is not a RocketMQ store: a directory with {', '.join(_PARTS)} in it is expected, "
            "since all tables but messages and corrupt_ranges need more than the commit log"
        )
    return folder


def queues_folder(root: StoreRoot, table: str) -> StoreFolder:
    """Return the folder for ``table``, which is read through queues; warn if entries may be missing.

    Raises:
        StoreError: as from :func:`root_folder`.
    """
    folder = root_folder(root)
    if not has_all_queues(folder):
        logger.warning(
            "%s was not stopped in order: %s has no messages whose entries in the queues did not reach the disk; "
            "messages chosen by their topics has them",
            root.shown,
            table,
        )
    return folder
