"""Lock that keeps a second server out of a folder with users and policies.

Both would hold the table in memory and overwrite each other's changes, also those that take a right away.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from rocketbroker.common import platform
from rocketbroker.common.errors import ConfigError

FILE_NAME: Final = "accessControl.lock"
_MODE: Final = 0o600


class TableLock:
    """Lock of one folder, held from ``acquire`` to ``release``; the kernel releases that of a killed process.

    Args:
        folder: the folder, which is created if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE_NAME
        self._fd = -1

    def acquire(self) -> None:
        """Acquire the lock unless this object holds it (blocks).

        Raises:
            ConfigError: Another server has it, or the file cannot be opened.
        """
        if self._fd >= 0:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
        except OSError as error:
            raise ConfigError(f"{self._path} cannot be opened: {error.strerror}") from error
        try:
            if platform.fcntl is not None:
                platform.fcntl.flock(fd, platform.fcntl.LOCK_EX | platform.fcntl.LOCK_NB)
        except OSError:
            holder = os.read(fd, 20).decode("ascii", "replace").strip()
            os.close(fd)
            raise ConfigError(
                f"authConfigPath: {self._path.parent} is in use by another server (process {holder or 'unknown'}), and "
                "two would overwrite each other's users and policies; give each server a folder of its own, or stop "
                "the other one"
            ) from None
        self._fd = fd
        # For the message alone.
        with suppress(OSError):
            os.ftruncate(fd, 0)
            os.write(fd, str(os.getpid()).encode())

    def release(self) -> None:
        """Release the lock, if this object holds it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
