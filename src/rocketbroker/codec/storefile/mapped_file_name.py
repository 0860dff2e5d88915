"""Files that are named by the offset of their first byte (UtilAll.offset2FileName).

name := the file's first byte offset in its queue, as 20 decimal digits
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from rocketbroker.common.errors import CodecError

_NAME: Final = re.compile(r"[0-9]{20}", re.ASCII)
_MAX_OFFSET: Final = (1 << 63) - 1


class OffsetFile(NamedTuple):
    """File of a log or a queue: offset of its first byte, path, and length in bytes."""

    base: int
    path: str
    size: int


def offset_files(sizes: Mapping[str, int], folder: str = "") -> list[OffsetFile]:
    """Select the files that are named by an offset, and sort them by it.

    Files that are being allocated, and damaged files that a broker set aside, have other names.

    Args:
        sizes: length of each file in the folder by its name.
        folder: folder of the paths to return.
    """
    found = []
    for name, size in sizes.items():
        try:
            found.append(OffsetFile(file_name_to_offset(name), f"{folder}/{name}" if folder else name, size))
        except CodecError:
            continue
    return sorted(found)


def offset_to_file_name(offset: int) -> str:
    """Return the name of the file that begins at byte ``offset``."""
    if not 0 <= offset <= _MAX_OFFSET:
        raise CodecError(f"file offset {offset} is outside 0..{_MAX_OFFSET}")
    return f"{offset:020d}"


def file_name_to_offset(name: str) -> int:
    """Return the first byte offset of the file called ``name``; :class:`CodecError` for any other name."""
    if _NAME.fullmatch(name) is None or (offset := int(name)) > _MAX_OFFSET:
        raise CodecError(f"{name!r} is not the name of a mapped file: expected 20 decimal digits up to {_MAX_OFFSET}")
    return offset
