"""``mqstore dump queue``: the entries of a ConsumeQueue, or a list of the queues."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from rocketbroker.app.mqstore.rows import Limit, Row, print_rows
from rocketbroker.app.mqstore.running import AsJson, ConfigFile, StoreDir, reading_a_store, store_config
from rocketbroker.audit.queue_audit import QueueFolder, queue_folders, queue_topics
from rocketbroker.codec.storefile.consume_queue_layout import is_filler, is_written
from rocketbroker.codec.storefile.dtypes import BATCH_CONSUME_QUEUE_ENTRY, CONSUME_QUEUE_ENTRY
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import StoreError


def command(
    directory: StoreDir,
    config_file: ConfigFile = None,
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", metavar="TOPIC", help="Topic of the queue; without it, list all queues."),
    ] = None,
    queue: Annotated[int, typer.Option("-q", "--queue", metavar="ID", help="Id of the queue.")] = 0,
    start: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="First queue offset to show.")] = 0,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show the entries of a ConsumeQueue; without a topic, list the queues."""
    with reading_a_store():
        config = store_config(directory, config_file)
        rows = queue_rows(config) if topic is None else entry_rows(config, topic, queue, start)
        print_rows(rows, as_json=as_json, limit=limit)


def queue_rows(config: MessageStoreConfig) -> Iterator[Row]:
    """Yield a row for each queue."""
    for topic in queue_topics(config.consume_queue_dir):
        for queue in sorted((each for each in topic.iterdir() if each.name.isdigit()), key=lambda each: int(each.name)):
            files = QueueFolder(queue, CONSUME_QUEUE_ENTRY)
            yield {
                "topic": topic.name,
                "queueId": int(queue.name),
                "fileSize": files.file_size,
                "firstQueueOffset": files.first,
                "roomTo": files.end,
            }
    for topic_name, queue_id, folder in queue_folders(config.batch_consume_queue_dir):
        files = QueueFolder(folder, BATCH_CONSUME_QUEUE_ENTRY)
        batches = [entry for _, entries in files.pieces() for entry in entries.tolist() if entry[1]]
        yield {
            "topic": topic_name,
            "queueId": queue_id,
            "fileSize": files.file_size,
            "firstQueueOffset": batches[0][4] if batches else 0,
            "batches": len(batches),
        }


def entry_rows(config: MessageStoreConfig, topic: str, queue_id: int, start: int) -> Iterator[Row]:
    """Yield a row for each written entry from queue offset ``start`` on, the batch that contains it included.

    Raises:
        StoreError: The queue does not exist.
    """
    batch_folder = config.batch_consume_queue_dir / topic / str(queue_id)
    if batch_folder.is_dir():
        yield from batch_rows(batch_folder, start)
        return
    folder = config.consume_queue_dir / topic / str(queue_id)
    if not folder.is_dir():
        raise StoreError(f"{config.consume_queue_dir} has no queue {topic}/{queue_id}")
    for first, entries in QueueFolder(folder, CONSUME_QUEUE_ENTRY).pieces(start):
        for queue_offset, (offset, size, tags_code) in enumerate(entries.tolist(), first):
            if is_written(size):
                kind = {"filler": True} if is_filler(offset, size) else {}
                row = {"queueOffset": queue_offset, "physicalOffset": offset, "size": size, "tagsCode": tags_code}
                yield row | kind


def batch_rows(folder: Path, start: int) -> Iterator[Row]:
    """Yield the rows of ``entry_rows`` for a queue of batches."""
    pieces = QueueFolder(folder, BATCH_CONSUME_QUEUE_ENTRY).pieces()
    for offset, size, tags_code, stored, base, count, _, _ in (entry for _, each in pieces for entry in each.tolist()):
        if size and base + count > start:
            yield {
                "queueOffset": base,
                "messages": count,
                "physicalOffset": offset,
                "size": size,
                "tagsCode": tags_code,
                "storeTimestamp": stored,
            }
