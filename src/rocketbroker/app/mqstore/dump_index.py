"""``mqstore dump index``: headers, slots and entries of index files, or where a key leads to."""

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from rocketbroker.app.mqstore.rows import Limit, Row, print_rows
from rocketbroker.app.mqstore.running import AsJson, ConfigFile, StoreDir, reading_a_store, store_config
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key, key_hash_of
from rocketbroker.common.errors import StoreError
from rocketbroker.store.audit.index_image import IndexImage, index_paths

_AT_ONCE = 1 << 16


class Part(StrEnum):
    """What to show of index files."""

    header = "header"
    slots = "slots"
    entries = "entries"


def command(  # noqa: PLR0913, PLR0917 - typer makes an option of each argument
    directory: StoreDir,
    config_file: ConfigFile = None,
    part: Annotated[Part, typer.Option("--part", help="What to show.")] = Part.header,
    topic: Annotated[str | None, typer.Option("-t", "--topic", help="Topic of the key or tag to follow.")] = None,
    key: Annotated[str | None, typer.Option("-k", "--key", help="Follow this key or unique id.")] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Follow this tag.")] = None,
    file: Annotated[str | None, typer.Option("--file", metavar="NAME", help="This index file only.")] = None,
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """Show index files, or where a key leads to."""
    text = _hashed(topic, key, tag)
    with reading_a_store():
        config = store_config(directory, config_file)
        slots = config.max_hash_slot_num if config_file is not None else None
        paths = [path for path in index_paths(config.index_dir) if file in {None, path.name}]
        if file is not None and not paths:
            raise StoreError(f"there is no index file {file} in {config.index_dir}")
        rows = (row for path in paths for row in _rows(_image(path, slots), part, text))
        print_rows(rows, as_json=as_json, limit=limit)


def _hashed(topic: str | None, key: str | None, tag: str | None) -> str | None:
    """What is hashed for the key or the tag."""
    if key is None and tag is None:
        return None
    if topic is None or (key is not None and tag is not None):
        raise typer.BadParameter("--key or --tag, one of them, goes with --topic")
    return build_key(topic, key) if key is not None else build_tag_key(topic, tag or "")


def _image(path: Path, slot_count: int | None) -> IndexImage:
    try:
        return IndexImage(path, slot_count)
    except StoreError as error:
        raise StoreError(f"{path}: {error}") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error


def _rows(image: IndexImage, part: Part, hashed: str | None) -> Iterator[Row]:
    if hashed is not None:
        return _chain(image, key_hash_of(java_hash(hashed)))
    return {Part.header: _header, Part.slots: _slots, Part.entries: _entries}[part](image)


def _header(image: IndexImage) -> Iterator[Row]:
    header = image.header
    yield {
        "file": image.path.name,
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
        yield {"file": image.path.name, "slot": slot, "entry": int(slots[slot])}


def _entries(image: IndexImage) -> Iterator[Row]:
    for start in range(1, image.used, _AT_ONCE):
        entries = image.entries(start, min(start + _AT_ONCE, image.used))
        for number, entry in enumerate(entries.tolist(), start):
            yield _entry(image, number, entry)


def _entry(image: IndexImage, number: int, entry: tuple[int, int, int, int]) -> dict[str, object]:
    key_hash, offset, diff, previous = entry
    return {
        "file": image.path.name,
        "entry": number,
        "keyHash": key_hash,
        "phyOffset": offset,
        "storeTimestamp": image.header.begin_timestamp + diff * 1000,
        "previous": previous,
    }


def _chain(image: IndexImage, key_hash: int) -> Iterator[Row]:
    """The chain of the key's slot, newest first: entries of other keys with the slot are in it, too."""
    number, before = int(image.slots()[key_hash % image.slot_count]), image.used
    while 0 < number < before:
        (entry,) = image.entries(number, number + 1).tolist()
        yield _entry(image, number, entry) | {"isOfKey": entry[0] == key_hash}
        before, number = number, entry[3]
