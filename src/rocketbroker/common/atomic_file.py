"""Atomic replacement of files and loading of tables so written (MixAll.string2File, ConfigManager)."""

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rocketbroker.common.errors import CodecError, ConfigError
from rocketbroker.common.file_system import LOCAL, FileSystem

log = logging.getLogger(__name__)

T = TypeVar("T")


def backup_of(path: Path) -> Path:
    """Return the path that keeps the previous contents of a file."""
    return path.with_name(path.name + ".bak")


def replace_contents(
    path: Path,
    data: bytes,
    file_system: FileSystem = LOCAL,
    mode: int | None = None,
    *,
    keeps_previous: bool = True,
) -> None:
    """Replace the contents of ``path`` and keep the previous ones in ``<path>.bak``; block until both are on disk.

    Each file gets its name after its bytes are on disk. So after a crash at any point both files are complete, and
    ``path`` has the old or the new contents.

    Args:
        path: the file.
        data: its new contents.
        file_system: the disk.
        mode: mode of both files, which their drafts have from the start; ``None`` for that of all store files.
        keeps_previous: write ``<path>.bak``.

    Raises:
        OSError: The file cannot be written; the old contents stay.
    """
    new_names = file_system.make_folders(path.parent)
    # Includes the folder that an earlier, failed call may have made.
    changed = dict.fromkeys((path.parent, *new_names, path.parent.parent))
    draft = path.with_name(path.name + ".tmp")
    if mode is not None:
        _make_empty(draft, mode, file_system)
    write_synced(draft, data, file_system)
    if keeps_previous and path.exists():
        backup_draft = path.with_name(path.name + ".bak.tmp")
        if mode is not None:
            _make_empty(backup_draft, mode, file_system)
        write_synced(backup_draft, path.read_bytes(), file_system)
        file_system.rename(backup_draft, backup_of(path))
    file_system.rename(draft, path)
    for folder in changed:
        file_system.sync_folder(folder)


def _make_empty(path: Path, mode: int, file_system: FileSystem) -> None:
    """Make an empty file with a mode, whatever the umask says; an earlier one may have another, and be open."""
    file_system.unlink(path)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode & 0o600)
    os.close(fd)
    path.chmod(mode)


def write_synced(path: Path, data: bytes, file_system: FileSystem = LOCAL) -> None:
    """Overwrite a file and block until its bytes, but not necessarily its name, are on disk.

    Raises:
        OSError: The file cannot be written.
    """
    fd = file_system.open(path)
    try:
        file_system.set_size(fd, 0)
        file_system.write(fd, 0, data)
        file_system.sync(fd)
    finally:
        file_system.close(fd)


def load_table(
    path: Path, parse: Callable[[bytes], T], count: Callable[[T], int], file_system: FileSystem = LOCAL
) -> T | None:
    """Load the table of a file or of its ``.bak``; return ``None`` if neither exists (blocks).

    Args:
        path: the file, written by ``replace_contents``.
        parse: decodes the contents of a file; raises CodecError for invalid contents.
        count: returns the number of entries of a table.
        file_system: the disk.

    Raises:
        ConfigError: Files exist but none can be read, so that starting would lose the table.
    """
    # The next write turns the file into the new backup, and must never replace the last good table that way.
    table, damage = _read(path, parse)
    if table is not None and count(table) != 0:
        return table
    backup = backup_of(path)
    before, backup_damage = _read(backup, parse)
    if table is not None:
        # All entries may have been removed, so an empty table counts. A backup with entries survives the next writes.
        if before is not None and count(before) != 0:
            kept = path.with_name(path.name + ".before-empty")
            log.error(
                "%s holds an empty table, but its backup %s has %s entries: the empty table is used, and the backup "
                "kept as %s; unless all entries were removed on purpose, stop the broker and copy it over the file",
                path,
                backup.name,
                count(before),
                kept.name,
            )
            _set_aside(backup, kept, file_system)
        return table
    if before is not None:
        log.error("%s; its backup %s was loaded instead", damage or f"{path} is missing", backup.name)
        if damage:
            _set_aside(path, path.with_name(path.name + ".damaged"), file_system)
        return before
    if damage or backup_damage:
        # To start with an empty table would overwrite both.
        faults = both_faults(str(path), damage, backup.name, backup_damage)
        raise ConfigError(f"{faults}: repair the file, or remove it and its backup to start with an empty table")
    return None


def both_faults(path: str, damage: str, backup: str, backup_damage: str) -> str:
    """Return the faults of a file and its backup as text; an empty fault means that the file is missing."""
    return f"{damage or f'{path} is missing'}; {backup_damage or f'there is no {backup}'}"


def _set_aside(path: Path, kept: Path, file_system: FileSystem) -> None:
    try:
        file_system.rename(path, kept)
        file_system.sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be set aside as {kept.name}: {error.strerror}") from error


def _read(path: Path, parse: Callable[[bytes], T]) -> tuple[T | None, str]:
    """Return the table in a file, or the reason why it cannot be read; an empty reason if it is missing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"
    return parsed(str(path), data, parse)


def parsed(path: str, data: bytes, parse: Callable[[bytes], T]) -> tuple[T | None, str]:
    """Return the table in ``data``, or the fault of the file ``path``."""
    if not data.strip():
        return None, f"{path} is empty"
    try:
        return parse(data), ""
    except CodecError as error:
        return None, f"{path} is damaged: {error}"
