"""Files with secrets, which others may not read: users and the key of their secrets, and keys of TLS."""

import os
import stat
from pathlib import Path
from typing import Final

from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.file_system import LOCAL, FileSystem

_MODE: Final = 0o600
# Windows has no such bits; the folder's access list counts there.
_HAS_MODES: Final = os.name == "posix"
_OTHERS: Final = 0o077
# The group may read a key that root owns: it is the group of the service, as with volumes of Kubernetes.
_GROUP_READS: Final = 0o040


def write_private(path: Path, data: bytes, file_system: FileSystem = LOCAL) -> None:
    """Replace the contents of a file with mode 0600; return when they are on disk (blocks).

    The file gets its name after its bytes are on disk, so it has the old or the new contents after a crash at any
    point. Unlike other tables it has no ``.bak``: a table that lost its last change must not be used in silence, since
    the change may have taken a right away.

    Raises:
        OSError: The file cannot be written; the old contents stay.
    """
    replace_contents(path, data, file_system, _MODE, keeps_previous=False)


def check_private(path: Path) -> None:
    """Check that others cannot read or write a file.

    Raises:
        FileNotFoundError: There is no such file.
        ConfigError: They can, or it is not a regular file.
    """
    mode = path.stat().st_mode
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path} is not a regular file")
    if _HAS_MODES and mode & _OTHERS:
        raise ConfigError(f"{path} has mode {stat.S_IMODE(mode):04o}, so that others can use it; run: chmod 600 {path}")


def check_key_mode(name: str, path: Path) -> None:
    """Check that other users cannot read a key.

    Args:
        name: the setting that names it.
        path: the file.

    Raises:
        ConfigError: They can.
        OSError: The file cannot be looked at.
    """
    status = path.stat()
    shared = status.st_mode & _OTHERS
    if not _HAS_MODES or not shared or (shared == _GROUP_READS and status.st_uid == 0):
        return
    raise ConfigError(
        f"{name}: other users may use {path} (mode {status.st_mode & 0o777:04o}); run chmod 600 on it, or let root own "
        "it with mode 0640 and the group of the service"
    )
