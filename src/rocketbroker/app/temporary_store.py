"""Store folder of one mqdev process; the next mqdev removes the folder of a killed one."""

import fcntl
import os
import shutil
import stat
import tempfile
from pathlib import Path

_PREFIX = "mqdev-"
# Locked while its mqdev runs. Only folders with this file and this content are removed.
_MARKER = "mqdev.lock"
_CONTENT = b"temporary store of mqdev, removed once nobody has this file locked\n"


class TemporaryStore:
    """A new folder in the directory for temporary files."""

    def __init__(self) -> None:
        remove_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._marker = os.open(self.path / _MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Lock first: once the marker has its content, others may remove the folder unless it is locked.
        fcntl.flock(self._marker, fcntl.LOCK_EX)
        os.write(self._marker, _CONTENT)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._marker)


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
