"""Store folder of one mqdev process; the next mqdev removes the temporary folder of a killed one."""

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

from rocketbroker.common.errors import ConfigError

_PREFIX = "mqdev-"
# Locked while its mqdev runs. Only folders with this file and this content are removed.
_MARKER = "mqdev.lock"
_CONTENT = b"temporary store of mqdev, removed once nobody has this file locked\n"


class StoreFolder:
    """The given folder, or a new one in the directory for temporary files.

    Args:
        given: folder to keep; None creates a temporary one.

    Attributes:
        path: the folder, absolute once it is created.
        is_kept: true if the folder outlives the process.
    """

    def __init__(self, given: Path | None) -> None:
        self._marker = -1
        self.path = given or Path()
        self.is_kept = given is not None

    def create(self) -> None:
        """Create the folder unless it is given and exists.

        Raises:
            ConfigError: The given folder cannot be created.
        """
        if not self.is_kept:
            self._create_temporary()
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"cannot create the folder {self.path}: {error.strerror}; choose another --store"
            raise ConfigError(text) from error
        self.path = self.path.absolute()

    def _create_temporary(self) -> None:
        remove_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._marker = os.open(self.path / _MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Lock first: once the marker has its content, others may remove the folder unless it is locked.
        fcntl.flock(self._marker, fcntl.LOCK_EX)
        os.write(self._marker, _CONTENT)

    def clear(self) -> None:
        """Remove all data of a temporary folder.

        Raises:
            ConfigError: The folder is to be kept.
        """
        if self.is_kept:
            raise ConfigError(
                f"the data in {self.path} is to be kept; leave out the store for data that can be removed"
            )
        for path in self.path.iterdir():
            if path.name == _MARKER:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove(self) -> None:
        """Remove a temporary folder."""
        if self._marker >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._marker)
            self._marker = -1


def remove_leftovers() -> None:
    """Remove the folders of killed mqdev processes of this user."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            _remove_leftover(path)
        except OSError:
            continue  # folder of another user, or already removed


def _remove_leftover(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    marker = os.open(path / _MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(marker, len(_CONTENT) + 1) == _CONTENT:
            shutil.rmtree(path)
    finally:
        os.close(marker)
