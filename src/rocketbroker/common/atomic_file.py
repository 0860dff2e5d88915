"""Atomic replacement of a file: a crash leaves the old or the new contents, never a part (MixAll.string2File)."""

from pathlib import Path

from rocketbroker.common.file_system import LOCAL, FileSystem


def backup_of(path: Path) -> Path:
    """Return the path that keeps the previous contents of a file."""
    return path.with_name(path.name + ".bak")


def replace_contents(path: Path, data: bytes, file_system: FileSystem = LOCAL) -> None:
    """Replace the contents of ``path`` and keep the previous ones in ``<path>.bak``; block until both are on disk.

    Each file gets its name after its bytes are on disk. So after a crash at any point both files are complete, and
    ``path`` has the old or the new contents.

    Raises:
        OSError: The file cannot be written; the old contents stay.
    """
    new_names = file_system.make_folders(path.parent)
    # Includes the folder that an earlier, failed call may have made.
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
