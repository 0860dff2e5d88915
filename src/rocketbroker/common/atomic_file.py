"""Replacing a file so that a crash leaves the old contents or the new ones, never a part (MixAll.string2File)."""

from pathlib import Path

from rocketbroker.common.file_system import LOCAL, FileSystem


def backup_of(path: Path) -> Path:
    """Where the previous contents of a file are kept."""
    return path.with_name(path.name + ".bak")


def replace_contents(path: Path, data: bytes, file_system: FileSystem = LOCAL) -> None:
    """Write ``path`` anew, with what was there before in ``<path>.bak``; blocks until the disk has it.

    Each of the two gets its name when its bytes are on disk. So after a crash at any point both are whole, and the
    first is the old or the new one.

    Raises:
        OSError: it cannot be written; the old contents stay.
    """
    new_names = file_system.make_folders(path.parent)
    # The last also when it was made by a call that then failed.
    changed = dict.fromkeys((path.parent, *new_names, path.parent.parent))
    draft = path.with_name(path.name + ".tmp")
    write_synced(draft, data, file_system)
    if path.exists():
        backup_draft = path.with_name(path.name + ".bak.tmp")
        write_synced(backup_draft, path.read_bytes(), file_system)
        file_system.rename(backup_draft, backup_of(path))
    file_system.rename(draft, path)
    for folder in changed:
        file_system.sync_folder(folder)


def write_synced(path: Path, data: bytes, file_system: FileSystem = LOCAL) -> None:
    """Write a file over what is there; blocks until the disk has its bytes, which says nothing of its name.

    Raises:
        OSError: it cannot be written.
    """
    fd = file_system.open(path)
    try:
        file_system.set_size(fd, 0)
        file_system.write(fd, 0, data)
        file_system.sync(fd)
    finally:
        file_system.close(fd)
