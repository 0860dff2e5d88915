"""``mqstore dump index``: headers, slots and entries of index files, or the entries of one key."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rocketbroker.app.mqstore.rows import Limit, Row, print_rows
from rocketbroker.app.mqstore.running import AsJson, ConfigFile, StoreDir, reading_a_store, store_config
from rocketbroker.audit.index_audit import index_paths
from rocketbroker.audit.queue_audit import open_local
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key, key_hash_of
from rocketbroker.codec.storefile.index_image import ChainedEntry, IndexImage, follow_chain, newest_entry
from rocketbroker.common.errors import CodecError, StoreError

_AT_ONCE = 1 << 16


class Part(StrEnum):
    """Part of an index file to show."""

    header = "header"
    slots = "slots"
    entries = "entries"


def command(  # noqa: PLR0913, PLR0917 - typer makes an option of each argument
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
        slots = config.max_hash_slot_num if config_file is not None else 0
        paths = [path for path in index_paths(config.index_dir) if file in {None, path.name}]
        if file is not None and not paths:
            raise StoreError(f"{config.index_dir} has no index file {file}")
        rows = (row for path in paths for row in _rows(_image(path, slots), part, text))
        print_rows(rows, as_json=as_json, limit=limit)


def _hashed(topic: str | None, key: str | None, tag: str | None) -> str | None:
    """Return the text to hash for the key or the tag."""
    if key is None and tag is None:
        return None
    if topic is None or (key is not None and tag is not None):
        raise typer.BadParameter("give --topic together with either --key or --tag")
    return build_key(topic, key) if key is not None else build_tag_key(topic, tag or "")


def _image(path: Path, slot_count: int) -> IndexImage:
    try:
        return IndexImage(str(path), open_local, slot_count)
    except CodecError as error:
        raise StoreError(f"{path}: {error}; give maxHashSlotNum (-c) if the file is sound") from error


def _rows(image: IndexImage, part: Part, hashed: str | None) -> Iterator[Row]:
    if hashed is not None:
        return _chain(image, key_hash_of(java_hash(hashed)))
    return {Part.header: _header, Part.slots: _slots, Part.entries: _entries}[part](image)


def _header(image: IndexImage) -> Iterator[Row]:
    header = image.header
    yield {
        "file": Path(image.path).name,
        "beginTimestamp": header.begin_timestamp,
        "endTimestamp": header.end_timestamp,
        "beginPhyOffset": header.begin_phy_offset,
        "endPhyOffset": header.end_phy_offset,
        "hashSlotCount": header.hash_slot_count,
        "indexCount": header.index_count,
        "maxHashSlotNum": image.slot_count,
        "maxIndexNum": image.entry_count,
    }


def _slots(image: IndexImage) -> Iterator[Row]:
    slots = image.slots()
    for slot in slots.nonzero()[0].tolist():
        yield {"file": Path(image.path).name, "slot": slot, "entry": int(slots[slot])}


def _entries(image: IndexImage) -> Iterator[Row]:
    for start in range(1, image.used, _AT_ONCE):
        entries = image.entries(start, min(start + _AT_ONCE, image.used))
        for number, entry in enumerate(entries.tolist(), start):
            yield _entry(image, ChainedEntry(number, *entry))


def _entry(image: IndexImage, entry: ChainedEntry) -> dict[str, object]:
    return {
        "file": Path(image.path).name,
        "entry": entry.number,
        "keyHash": entry.key_hash,
        "phyOffset": entry.phy_offset,
        "storeTimestamp": image.header.begin_timestamp + entry.time_diff * 1000,
        "previous": entry.previous,
    }


def _chain(image: IndexImage, key_hash: int) -> Iterator[Row]:
    with open_local(image.path) as file:
        newest = newest_entry(file.read_at, image.slot_count, key_hash)
        for entry in follow_chain(file.read_at, image.slot_count, newest, image.used):
            yield _entry(image, entry) | {"isOfKey": entry.key_hash == key_hash}
