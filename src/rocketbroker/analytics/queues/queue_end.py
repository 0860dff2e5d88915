"""Where queues end, by their files: told without a look at the messages."""

import logging
from typing import Final

from rocketbroker.analytics.files.mapped_files import mapped_files, written_entries
from rocketbroker.analytics.files.store_files import StoreFolder, is_file_name, opened
from rocketbroker.analytics.queues.queue_files import ENTRIES
from rocketbroker.codec.storefile.consume_queue_layout import BATCH_ENTRY, CQ_STORE_UNIT_SIZE

logger = logging.getLogger(__name__)

_UNITS: Final = {kind: entry.itemsize for kind, entry in ENTRIES.items()}


def queue_end(folder: StoreFolder, topic: str, queue_id: int) -> int | None:
    """The queue offset behind a queue's last message, found by some twenty reads; ``None`` if there is no such queue.

    A file is searched as one in which nothing follows a place that was not written. A topic that no folder can be
    called after, as a damaged file of offsets may name one, is named in the log.
    """
    if not is_file_name(topic):
        logger.warning("%s names a topic %r: no queue can be called so, it is passed over", folder.root.shown, topic)
        return None
    ends = [_end(folder, f"{kind}/{topic}/{queue_id}", unit) for kind, unit in _UNITS.items()]
    return max((end for end in ends if end is not None), default=None)


def _end(folder: StoreFolder, where: str, unit: int) -> int | None:
    for base, path, size in reversed(mapped_files(folder, where)):
        with opened(folder, path) as file:
            written = written_entries(file, size // unit, unit)
            if written and unit == CQ_STORE_UNIT_SIZE:
                return base // unit + written
            if written:
                *_, first, messages, _, _ = BATCH_ENTRY.unpack(file.read_at((written - 1) * unit, unit))
                return int(first + messages)
    return 0 if folder.is_folder(where) else None
