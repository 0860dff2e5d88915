"""Replacing a file so that a crash leaves the old contents or the new ones, never a part (MixAll.string2File)."""

import os
from pathlib import Path

from rocketbroker.common.folders import sync_folder


def backup_of(path: Path) -> Path:
    """Where the previous contents of a file are kept."""
    return path.with_name(path.name + ".bak")


def replace_contents(path: Path, data: bytes) -> None:
    """Write ``path`` anew, with what was there before in ``<path>.bak``; blocks until the disk has it.

    Raises:
        OSError: it cannot be written; the old contents stay.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".tmp")
    write_synced(draft, data)
    if path.exists():
        backup_of(path).write_bytes(path.read_bytes())
    draft.replace(path)
    sync_folder(path.parent)


def write_synced(path: Path, data: bytes) -> None:
    """Write a file over what is there; blocks until the disk has its bytes, which says nothing of its name.

    Raises:
        OSError: it cannot be written.
    """
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
