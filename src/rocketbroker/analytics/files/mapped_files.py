"""Files that are named by the offset of their first byte, and are filled from their begin. See ``MappedFileQueue``."""

from bisect import bisect_left
from typing import Final, NamedTuple

from rocketbroker.analytics.files.store_files import StoreFolder
from rocketbroker.codec.storefile.mapped_file_name import file_name_to_offset
from rocketbroker.codec.storefile.store_file import StoreFile
from rocketbroker.common.errors import CodecError

# Where the size stands in an entry of a queue of either kind.
_SIZE_AT: Final = 8


class MappedFile(NamedTuple):
    """A file of a log or a queue: the offset of its first byte, its path in the store, and its length in bytes."""

    base: int
    path: str
    size: int


def mapped_files(folder: StoreFolder, where: str) -> list[MappedFile]:
    """The files in the folder ``where`` by offset, those that are there now; none if there is no such folder.

    Drafts of an allocation under way, and damaged files that a broker set aside, are called otherwise.
    """
    found = []
    for name, size in folder.files(where).items():
        try:
            found.append(MappedFile(file_name_to_offset(name), f"{where}/{name}" if where else name, size))
        except CodecError:
            continue
    return sorted(found)


def written_entries(file: StoreFile, count: int, unit: int) -> int:
    """How many of the ``count`` entries of ``unit`` bytes in a queue's file are written, found by some twenty reads.

    The file is taken for one in which nothing follows a place that was not written.
    """
    return bisect_left(range(count), True, key=lambda number: not any(file.read_at(number * unit + _SIZE_AT, 4)))
