"""File sizes of a store, read from its files."""

from pathlib import Path
from typing import Any

import numpy as np

from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY
from rocketbroker.codec.storefile.index_file_layout import MAX_HASH_SLOT_NUM, MAX_INDEX_NUM
from rocketbroker.codec.storefile.index_image import IndexImage
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError, StoreError
from rocketbroker.store.audit.index_audit import index_paths
from rocketbroker.store.audit.queue_files import QueueFolder, open_local
from rocketbroker.store.audit.queues_audit import queue_folders
from rocketbroker.store.audit.store_audit import log_files


def with_sizes_of_files(config: MessageStoreConfig) -> MessageStoreConfig:
    """Return ``config`` with the store's file sizes; the index is enabled if its folder exists.

    Raises:
        StoreError: There is no CommitLog.
    """
    sizes: dict[str, object] = {"message_index_enable": config.index_dir.is_dir()}
    if of_log := _usual([file.size for file in log_files(config.commit_log_dir)]):
        sizes["mapped_file_size_commit_log"] = of_log
    if of_queues := _usual(_queue_file_sizes(config.consume_queue_dir, CONSUME_QUEUE_ENTRY)):
        sizes["mapped_file_size_consume_queue"] = of_queues
    if of_batches := _usual(_queue_file_sizes(config.batch_consume_queue_dir, BATCH_CONSUME_QUEUE_ENTRY)):
        sizes["mapper_file_size_batch_consume_queue"] = of_batches
    sizes["max_hash_slot_num"], sizes["max_index_num"] = _index_sizes(config)
    return config.model_copy(update=sizes)


def _usual(sizes: list[int]) -> int:
    known = [size for size in sizes if size]
    return max(set(known), key=known.count, default=0)


def _queue_file_sizes(directory: Path, layout: np.dtype[Any]) -> list[int]:
    return [QueueFolder(queue, layout).file_size for _, _, queue in queue_folders(directory)]


def _index_sizes(config: MessageStoreConfig) -> tuple[int, int]:
    for path in index_paths(config.index_dir):
        try:
            image = IndexImage(str(path), open_local)
        except (CodecError, StoreError):
            continue
        return image.slot_count, image.entry_count
    return MAX_HASH_SLOT_NUM, MAX_INDEX_NUM
