"""Files that only the broker's user may read: the table of users, and the key of their secrets."""

import os
import stat
from pathlib import Path
from typing import Final

from rocketbroker.common.atomic_file import write_synced
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.file_system import LOCAL, FileSystem

_MODE: Final = 0o600
# Windows has no such bits; the folder's access list counts there.
_HAS_MODES: Final = os.name == "posix"


def write_private(path: Path, data: bytes, file_system: FileSystem = LOCAL) -> None:
    """Replace the contents of a file with mode 0600; return when they are on disk (blocks).

    The file gets its name after its bytes are on disk, so it has the old or the new contents after a crash at any
    point. Unlike other tables it has no ``.bak``: a table that lost its last change must not be used in silence, since
    the change may have taken a right away.

    Raises:
        OSError: The file cannot be written; the old contents stay.
    """
    new_names = file_system.make_folders(path.parent)
    draft = path.with_name(path.name + ".tmp")
    # An earlier draft may have another mode, and a file that is open elsewhere.
    file_system.unlink(draft)
    os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _MODE))
    write_synced(draft, data, file_system)
    file_system.rename(draft, path)
    for folder in dict.fromkeys((path.parent, *new_names, path.parent.parent)):
        file_system.sync_folder(folder)


def check_private(path: Path) -> None:
    """Check that others cannot read or write a file.

    Raises:
        FileNotFoundError: There is no such file.
        ConfigError: They can, or it is not a regular file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path} is not a regular file")
    if _HAS_MODES and mode & 0o077:
        raise ConfigError(f"{path} has mode {stat.S_IMODE(mode):04o}, so that others can use it; run: chmod 600 {path}")
