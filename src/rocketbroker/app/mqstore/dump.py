"""``mqstore dump``: records, queue entries, index files, checkpoint and tables of a store."""

import base64
from collections.abc import Iterator
from contextlib import closing
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Any, Final

import typer

from rocketbroker.app.mqstore.options import (
    AsJson,
    ConfigFile,
    Limit,
    Row,
    StoreDir,
    print_rows,
    reading_a_store,
    store_config,
)
from rocketbroker.app.terminal import print_json, say
from rocketbroker.audit.store_files import (
    CHECKPOINT,
    CONFIG,
    INDEX,
    LocalStore,
    QueueFolder,
    log_segments,
    opened,
    queue_name,
    queue_paths,
    read_state,
)
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.checkpoint_layout import decode_checkpoint
from rocketbroker.codec.storefile.config_tables import loads_config
from rocketbroker.codec.storefile.consume_queue_layout import is_filler, is_written
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key, key_hash_of
from rocketbroker.codec.storefile.index_image import ChainedEntry, IndexImage, follow_chain, newest_entry
from rocketbroker.codec.storefile.log_walk import FileWalk
from rocketbroker.codec.storefile.queue_files import BATCH_CONSUME_QUEUE, CONSUME_QUEUE
from rocketbroker.codec.storefile.record_search import Found, find_record, wrong_body
from rocketbroker.codec.storefile.store_file import LogWindow
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.errors import CodecError, StoreError

# Bytes of the log read at a time: often only the first records are read.
_BLOCK: Final = 256 << 10
_PREVIEW: Final = 60
_ENTRIES_AT_ONCE: Final = 1 << 16

Topic = Annotated[str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Show records of this topic only.")]


# -- the CommitLog


def log(
    directory: StoreDir,
    config_file: ConfigFile = None,
    start: Annotated[
        int,
        typer.Option(
            "--from", min=0, metavar="OFFSET", help="Start at the first record at or after this physical offset."
        ),
    ] = 0,
    limit: Limit = 100,
    topic: Topic = None,
    queue_id: Annotated[
        int | None, typer.Option("-q", "--queue", metavar="ID", help="Show records of this queue only.")
    ] = None,
    body: Annotated[bool, typer.Option("--body", help="Show whole bodies (base64 in JSON).")] = False,
    as_json: AsJson = False,
) -> None:
    """Show the records of the CommitLog."""
    with reading_a_store():
        config = store_config(directory, config_file)
        wanted = (
            row | _shown_body(content, whole=body, as_json=as_json)
            for row, content in log_rows(config, start)
            if topic in {None, row.get("topic", topic)} and queue_id in {None, row.get("queueId", queue_id)}
        )
        print_rows(wanted, as_json=as_json, limit=limit)


def log_rows(config: MessageStoreConfig, start: int) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    """Yield a row and the body for each record from the first one at or after ``start``, and for each damaged range.

    Raises:
        StoreError: A file cannot be read.
    """
    folder = LocalStore(config)
    for segment in log_segments(config.commit_log_dir):
        if segment.data_end and segment.base + segment.data_end > start:
            with closing(folder.open(segment.path, "CommitLog file")) as source:
                yield from _rows_of_file(LogWindow(source, segment, _BLOCK), max(start - segment.base, 0))


def _rows_of_file(window: LogWindow, position: int) -> Iterator[tuple[dict[str, Any], bytes | None]]:
    base, data_end = window.file.base, window.file.data_end
    if position:
        position = find_record(window, position, data_end)
    walk = FileWalk(window, position, data_end)
    while position >= 0:
        walk.position = position
        for stretch in walk:
            for record in map(stretch.__getitem__, range(len(stretch))):
                message = decode_record(record)
                yield _record_row(message, is_right=not wrong_body(record)), message.body
        position = -1
        if walk.found is Found.BROKEN:
            position = walk.next_record(data_end)
            length = (position if position >= 0 else data_end) - walk.position
            yield {"physicalOffset": base + walk.position, "damagedBytes": length}, None


def _record_row(message: MessageExt, *, is_right: bool) -> dict[str, Any]:
    return {
        "physicalOffset": message.commit_log_offset,
        "size": message.store_size,
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "storeTimestamp": message.store_timestamp,
        "bornTimestamp": message.born_timestamp,
        "bornHost": message.born_host_text,
        "storeHost": message.store_host_text,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "reconsumeTimes": message.reconsume_times,
        "preparedTransactionOffset": message.prepared_transaction_offset,
        "bodyCRC": "right" if is_right else "wrong",
        "msgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.get_property("KEYS"),
        "uniqKey": message.uniq_key,
        "properties": message.properties,
        "bodyLength": message.body_length,
    }


def _shown_body(body: bytes | None, *, whole: bool, as_json: bool) -> dict[str, Any]:
    if body is None:
        return {}
    if whole:
        return {"body": base64.b64encode(body).decode() if as_json else body.decode("utf-8", "replace")}
    return {"bodyPreview": body[:_PREVIEW].decode("utf-8", "replace")}


# -- queues


def queue(
    directory: StoreDir,
    config_file: ConfigFile = None,
    topic: Annotated[
        str | None,
        typer.Option("-t", "--topic", metavar="TOPIC", help="Topic of the queue; without it, list all queues."),
    ] = None,
    queue_id: Annotated[int, typer.Option("-q", "--queue", metavar="ID", help="Id of the queue.")] = 0,
    start: Annotated[int, typer.Option("--from", min=0, metavar="OFFSET", help="First queue offset to show.")] = 0,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show the entries of a ConsumeQueue; without a topic, list the queues."""
    with reading_a_store():
        folder = LocalStore(store_config(directory, config_file))
        rows = map(_queue_row, _queues(folder)) if topic is None else _entry_rows(folder, topic, queue_id, start)
        print_rows(rows, as_json=as_json, limit=limit)


def _queues(folder: LocalStore) -> Iterator[QueueFolder]:
    return (QueueFolder(folder, path) for path in queue_paths(folder))


def _queue_row(files: QueueFolder) -> Row:
    topic, queue_id = queue_name(files.path)
    row: dict[str, Any] = {"topic": topic, "queueId": queue_id, "fileSize": files.file_size}
    if files.path.startswith(CONSUME_QUEUE):
        return row | {"firstQueueOffset": files.first, "roomTo": files.end}
    batches = [entry for _, entries in files.pieces() for entry in entries.tolist() if entry[1]]
    return row | {"firstQueueOffset": batches[0][4] if batches else 0, "batches": len(batches)}


def _entry_rows(folder: LocalStore, topic: str, queue_id: int, start: int) -> Iterator[Row]:
    """Yield a row for each written entry from queue offset ``start`` on, the batch that contains it included.

    Raises:
        StoreError: The queue does not exist.
    """
    by_path = {files.path: files for files in _queues(folder)}
    if (batches := by_path.get(f"{BATCH_CONSUME_QUEUE}/{topic}/{queue_id}")) is not None:
        yield from _batch_rows(batches, start)
        return
    files = by_path.get(f"{CONSUME_QUEUE}/{topic}/{queue_id}")
    if files is None:
        raise StoreError(f"{folder.name_of(CONSUME_QUEUE)} has no queue {topic}/{queue_id}")
    for first, entries in files.pieces(start):
        for queue_offset, (offset, size, tags_code) in enumerate(entries.tolist(), first):
            if is_written(size):
                kind = {"filler": True} if is_filler(offset, size) else {}
                row = {"queueOffset": queue_offset, "physicalOffset": offset, "size": size, "tagsCode": tags_code}
                yield row | kind


def _batch_rows(files: QueueFolder, start: int) -> Iterator[Row]:
    for offset, size, tags_code, stored, base, count, _, _ in (e for _, each in files.pieces() for e in each.tolist()):
        if size and base + count > start:
            yield {
                "queueOffset": base,
                "messages": count,
                "physicalOffset": offset,
                "size": size,
                "tagsCode": tags_code,
                "storeTimestamp": stored,
            }


# -- the index


class Part(StrEnum):
    """Part of an index file to show."""

    header = "header"
    slots = "slots"
    entries = "entries"


def index(
    directory: StoreDir,
    config_file: ConfigFile = None,
    part: Annotated[Part, typer.Option("--part", help="Part of the files to show.")] = Part.header,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="Topic of the key or tag.")
    ] = None,
    key: Annotated[
        str | None, typer.Option("-k", "--key", metavar="KEY", help="Show the entries of this key or unique id.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", metavar="TAG", help="Show the entries of this tag.")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="NAME", help="Show this index file only.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show index files, or the entries of one key."""
    text = _hashed(topic, key, tag)
    with reading_a_store():
        config = store_config(directory, config_file)
        folder, slots = LocalStore(config), config.max_hash_slot_num if config_file is not None else 0
        names = [name for name in folder.files(INDEX) if name.isdigit() and file in {None, name}]
        if file is not None and not names:
            raise StoreError(f"{config.index_dir} has no index file {file}")
        images = (_index_image(folder, f"{INDEX}/{name}", slots) for name in names)
        rows = (row for image in images for row in _index_rows(folder, image, part, text))
        print_rows(rows, as_json=as_json, limit=limit)


def _hashed(topic: str | None, key: str | None, tag: str | None) -> str | None:
    """Return the text to hash for the key or the tag."""
    if key is None and tag is None:
        return None
    if topic is None or (key is not None and tag is not None):
        raise typer.BadParameter("give --topic together with either --key or --tag")
    return build_key(topic, key) if key is not None else build_tag_key(topic, tag or "")


def _index_image(folder: LocalStore, path: str, slot_count: int) -> IndexImage:
    try:
        return IndexImage(path, lambda each: opened(folder, each), slot_count)
    except CodecError as error:
        raise StoreError(f"{folder.name_of(path)}: {error}; give maxHashSlotNum (-c) if the file is sound") from error


def _index_rows(folder: LocalStore, image: IndexImage, part: Part, hashed: str | None) -> Iterator[Row]:
    name, header = PurePath(image.path).name, image.header
    if hashed is not None:
        yield from _chain(folder, image, key_hash_of(java_hash(hashed)))
    elif part is Part.header:
        yield {
            "file": name,
            "beginTimestamp": header.begin_timestamp,
            "endTimestamp": header.end_timestamp,
            "beginPhyOffset": header.begin_phy_offset,
            "endPhyOffset": header.end_phy_offset,
            "hashSlotCount": header.hash_slot_count,
            "indexCount": header.index_count,
            "maxHashSlotNum": image.slot_count,
            "maxIndexNum": image.entry_count,
        }
    elif part is Part.slots:
        slots = image.slots()
        yield from ({"file": name, "slot": slot, "entry": int(slots[slot])} for slot in slots.nonzero()[0].tolist())
    else:
        for start in range(1, image.used, _ENTRIES_AT_ONCE):
            entries = image.entries(start, min(start + _ENTRIES_AT_ONCE, image.used))
            yield from (_entry(image, ChainedEntry(at, *entry)) for at, entry in enumerate(entries.tolist(), start))


def _entry(image: IndexImage, entry: ChainedEntry) -> dict[str, Any]:
    return {
        "file": PurePath(image.path).name,
        "entry": entry.number,
        "keyHash": entry.key_hash,
        "phyOffset": entry.phy_offset,
        "storeTimestamp": image.header.begin_timestamp + entry.time_diff * 1000,
        "previous": entry.previous,
    }


def _chain(folder: LocalStore, image: IndexImage, key_hash: int) -> Iterator[Row]:
    with opened(folder, image.path) as file:
        newest = newest_entry(file.read_at, image.slot_count, key_hash)
        for entry in follow_chain(file.read_at, image.slot_count, newest, image.used):
            yield _entry(image, entry) | {"isOfKey": entry.key_hash == key_hash}


# -- the checkpoint and config/


def checkpoint(directory: StoreDir, config_file: ConfigFile = None, as_json: AsJson = False) -> None:
    """Show the checkpoint and whether the store was stopped cleanly."""
    with reading_a_store():
        config = store_config(directory, config_file)
        state, found = read_state(config), decode_checkpoint(_read(LocalStore(config), CHECKPOINT))
        row = {
            "physicMsgTimestamp": found.physic_msg_timestamp,
            "logicsMsgTimestamp": found.logics_msg_timestamp,
            "indexMsgTimestamp": found.index_msg_timestamp,
            "masterFlushedOffset": found.master_flushed_offset,
            "confirmPhyOffset": found.confirm_phy_offset,
            "logicsPhysicalOffset": found.logics_physical_offset,
            "cleanStop": not state.unclean,
            "lockedBy": list(state.holders),
        }
        print_rows([row], as_json=as_json)


def config(
    directory: StoreDir,
    config_file: ConfigFile = None,
    file: Annotated[
        str | None, typer.Option("--file", metavar="NAME", help="Show this table only, such as topics.json.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show the tables of config/ as standard JSON."""
    with reading_a_store():
        folder = LocalStore(store_config(directory, config_file))
        names = [file] if file is not None else [name for name in folder.files(CONFIG) if name.endswith(".json")]
        for name in names:
            path = f"{CONFIG}/{name}"
            try:
                table = _plain(loads_config(_read(folder, path)))
            except CodecError as error:
                raise StoreError(f"{folder.name_of(path)} is damaged: {error}") from error
            if as_json:
                print_rows([{"file": name, "table": table}], as_json=True)
            else:
                say(f"{name}:")
                print_json(table)


def _plain(table: dict[Any, Any]) -> dict[str, Any]:
    """Return the table with its integer keys as text, as JSON requires."""
    return {str(key): _plain(value) if isinstance(value, dict) else value for key, value in table.items()}


def _read(folder: LocalStore, path: str) -> bytes:
    data = folder.read_if_there(path)
    if data is None:
        raise StoreError(f"{folder.name_of(path)} does not exist")
    return data
