"""Repair of missing, wrongly sized and foreign files of a store, before they are mapped.

No part of the CommitLog is discarded. A file that became shorter gets its size back, and one that is missing in the
middle is recreated, so that the others keep their offsets; lost parts are reported. Queues and index can be rebuilt
from the log, so their damaged files are renamed to ``<name>.damaged``.
"""

import itertools
import os
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rocketbroker.codec.storefile.consume_queue_layout import CQ_STORE_UNIT_SIZE, SIZE_POSITION, is_written
from rocketbroker.codec.storefile.store_file import offset_to_file_name
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import FileSystem
from rocketbroker.store.logfile.mapped_file import CUT_SUFFIX

# If more files than these are missing between two, one of the names is wrong.
_MOST_MISSING = 1024
_SET_ASIDE = re.compile(r"\.damaged(-[0-9]+)?\Z")


class MendedRange(NamedTuple):
    """Lost bytes of the CommitLog, by offsets, and the reason."""

    begin: int
    end: int
    why: str


class _Named(NamedTuple):
    """A file whose name is an offset."""

    offset: int
    size: int
    path: Path


def mend_commit_log(
    directory: Path,
    file_size: int,
    file_system: FileSystem,
    report: list[str],
    before_change: Callable[[int], None],
) -> tuple[list[MendedRange], int]:
    """Restore the size of CommitLog files and recreate those missing between two others (blocks).

    Return the parts lost in files that are followed by others, and the offset after the last of these files, 0 without
    any.

    Args:
        before_change: called before a file is changed, with the offset after the last lost byte.

    Raises:
        StoreError: They were created with another size, or too many are missing.
    """
    for path in directory.glob(f"*{CUT_SUFFIX}"):
        # A crash came before the copy replaced the truncated file.
        file_system.unlink(path)
    files, foreign = _files_of(directory)
    report += [f"{path}: is not a file of the CommitLog; left unchanged" for path in foreign]
    gaps = [(before, after, after.offset - before.offset) for before, after in pairwise(files)]
    wrong = [file for file in files if file.size > file_size] + [before for before, _, gap in gaps if gap % file_size]
    if wrong:
        raise StoreError(
            f"{wrong[0].path} has {wrong[0].size} bytes, but files of this kind are set to {file_size}; "
            "set mappedFileSizeCommitLog to the size with which the store was created"
        )
    for before, after, gap in gaps:
        if gap > _MOST_MISSING * file_size:
            raise StoreError(f"{gap // file_size - 1} files are missing between {before.path} and {after.path}")
    short = [file for file in files if file.size < file_size and (file.size or file is not files[-1])]
    lost = [
        MendedRange(file.offset + file.size, file.offset + file_size, "the file was truncated")
        for file in short
        if file is not files[-1]
    ]
    missing = [
        offset for before, after, _ in gaps for offset in range(before.offset + file_size, after.offset, file_size)
    ]
    lost += [MendedRange(offset, offset + file_size, "the file was missing") for offset in missing]
    mended_to = max((each.end for each in lost), default=0)
    if short or missing:
        before_change(mended_to)
    for file in short:
        _set_size(file.path, file_size, file_system)
        report.append(f"{file.path}: had {file.size} bytes; restored to {file_size}")
    for offset in missing:
        path = directory / offset_to_file_name(offset)
        _set_size(path, file_size, file_system)
        report.append(f"{path}: was missing; recreated without messages")
    if lost:
        file_system.sync_folder(directory)
    return lost, mended_to


def mend_queue(
    directory: Path,
    file_size: int,
    file_system: FileSystem,
    report: list[str],
    before_change: Callable[[], None],
    *,
    clean_stop: bool,
    unit_size: int = CQ_STORE_UNIT_SIZE,
) -> bool:
    """Set aside the first damaged file of a queue, and remove the files after it (blocks).

    Return true if the queue lacks the entries of these files.

    Args:
        clean_stop: true if everything was on disk, so that no file but the last may lack entries.
    """
    files, foreign = _files_of(directory)
    for path in foreign:
        before_change()
        report.append(f"{path}: is not a file of a queue; set aside as {set_aside(path, file_system).name}")
    # Files after it were created for messages that never came.
    last = next((file.offset for file in reversed(files) if file.size and _are_written(file.path, 0)), 0)
    for number, file in enumerate(files):
        why = _why_damaged(files, number, file_size)
        is_inner = clean_stop and file.offset < last
        if not why and is_inner and not _are_written(file.path, 0, file_size - unit_size):
            why = "has no entries, but others follow it"
        if why:
            before_change()
            if file.size and "missing" not in why:
                why += f", and it was set aside as {set_aside(file.path, file_system).name}"
            report.append(f"{file.path}: {why}; the queue is rebuilt from this file on")
            for later in files[number:]:
                file_system.unlink(later.path)
            file_system.sync_folder(directory)
            return True
    return False


def _why_damaged(files: list[_Named], number: int, file_size: int) -> str:
    file, is_last = files[number], number == len(files) - 1
    if not file.size and is_last:
        return ""  # created but not grown to its size: a crash came between
    if file.size != file_size:
        return f"has {file.size} bytes instead of {file_size}"
    if file.offset % file_size:
        return f"its name is not a multiple of {file_size}"
    if number and file.offset != files[number - 1].offset + file_size:
        return "the file before it is missing"
    return ""


def _are_written(path: Path, *positions: int) -> bool:
    """Return true if the entries at some positions of a file are written."""
    with path.open("rb", buffering=0) as file:
        sizes = (os.pread(file.fileno(), 4, position + SIZE_POSITION) for position in positions)
        return all(is_written(int.from_bytes(size, "big", signed=True)) for size in sizes)


def set_aside(path: Path, file_system: FileSystem) -> Path:
    """Rename a damaged file to ``<name>.damaged``, numbered if that name is in use (blocks); return its new path."""
    numbered = (path.with_name(f"{path.name}.damaged-{number}") for number in itertools.count(2))
    free = (each for each in itertools.chain([path.with_name(f"{path.name}.damaged")], numbered) if not each.exists())
    aside = next(free)
    file_system.rename(path, aside)
    file_system.sync_folder(path.parent)
    return aside


def _files_of(directory: Path) -> tuple[list[_Named], list[Path]]:
    """Return a folder's files that are named by offsets, in order, and the others that were not set aside before."""
    if not directory.is_dir():
        return [], []
    named, foreign = [], []
    for path in sorted(path for path in directory.iterdir() if path.is_file()):
        if path.name.isascii() and path.name.isdigit() and len(path.name) == len(offset_to_file_name(0)):
            named.append(_Named(int(path.name), path.stat().st_size, path))
        elif not _SET_ASIDE.search(path.name):
            foreign.append(path)
    return named, foreign


def _set_size(path: Path, size: int, file_system: FileSystem) -> None:
    try:
        fd = file_system.open(path)
        try:
            file_system.set_size(fd, size)
        finally:
            file_system.close(fd)
    except OSError as error:
        raise StoreError(f"cannot give {path} its {size} bytes: {error.strerror}") from error
