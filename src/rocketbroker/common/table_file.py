"""Reading a table that ``replace_contents`` wrote, or its backup (org.apache.rocketmq.common.ConfigManager.load).

1. A file that is whole is taken.
2. One that is missing or damaged is named in the log and its ``.bak`` is taken. The damaged file is set aside as
   ``<file>.damaged``: the next write makes the file the new backup, and must not put damage over a good one.
3. When there is something and nothing of it can be read, the start is refused: an empty table would be written over it.
4. A file that is whole and empty is taken too, since all entries may have been removed. If its backup holds entries,
   that is told and the backup is set aside as ``<file>.before-empty``, so that it outlives the next writes.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rocketbroker.common.atomic_file import backup_of
from rocketbroker.common.errors import CodecError, ConfigError
from rocketbroker.common.file_system import LOCAL, FileSystem

log = logging.getLogger(__name__)

T = TypeVar("T")


def load_table(
    path: Path, parse: Callable[[bytes], T], count: Callable[[T], int], file_system: FileSystem = LOCAL
) -> T | None:
    """The table in a file, else the one in its ``.bak``, else ``None`` as there is neither (blocks).

    Args:
        path: the file.
        parse: makes a table of a file's contents; raises CodecError when they are none.
        count: how many entries a table has.
        file_system: the disk.

    Raises:
        ConfigError: there are files and none of them can be read, so that starting would lose the table.
    """
    table, damage = _read(path, parse)
    if table is None:
        return _load_backup(path, damage, parse, file_system)
    if count(table) == 0:
        _keep_backup_of_empty(path, parse, count, file_system)
    return table


def _load_backup(path: Path, damage: str, parse: Callable[[bytes], T], file_system: FileSystem) -> T | None:
    backup = backup_of(path)
    table, backup_damage = _read(backup, parse)
    if table is not None:
        log.error("%s, its backup %s was loaded instead", damage or f"{path} is missing", backup.name)
        if damage:
            _set_aside(path, path.with_name(path.name + ".damaged"), file_system)
        return table
    if damage or backup_damage:
        raise ConfigError(
            f"{damage or f'{path} is missing'}; {backup_damage or f'there is no {backup.name}'}: "
            "repair the file, or remove it and its backup to start with an empty table"
        )
    return None


def _keep_backup_of_empty(
    path: Path, parse: Callable[[bytes], T], count: Callable[[T], int], file_system: FileSystem
) -> None:
    backup = backup_of(path)
    before, _ = _read(backup, parse)
    if before is None or count(before) == 0:
        return
    kept = path.with_name(path.name + ".before-empty")
    log.error(
        "%s holds an empty table, its backup %s held %s entries: the broker goes on with the empty one and keeps the "
        "backup as %s; unless all were removed on purpose, stop the broker and copy it over the file",
        path,
        backup.name,
        count(before),
        kept.name,
    )
    _set_aside(backup, kept, file_system)


def _set_aside(path: Path, kept: Path, file_system: FileSystem) -> None:
    try:
        file_system.rename(path, kept)
        file_system.sync_folder(path.parent)
    except OSError as error:
        raise ConfigError(f"{path} cannot be set aside as {kept.name}: {error.strerror}") from error


def _read(path: Path, parse: Callable[[bytes], T]) -> tuple[T | None, str]:
    """The table in a file, else what is wrong with the file, "" when there is none."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{path} cannot be read: {error.strerror}"
    if not data.strip():
        return None, f"{path} is empty"
    try:
        return parse(data), ""
    except CodecError as error:
        return None, f"{path} is damaged: {error}"
