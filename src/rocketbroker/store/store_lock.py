"""The files that say who uses a store: ``lock`` and ``abort`` (DefaultMessageStore.lockFile, createTempFile)."""

import fcntl
import os
from pathlib import Path

from rocketbroker.common.atomic_file import write_synced
from rocketbroker.common.errors import StoreError
from rocketbroker.common.folders import sync_folder


class StoreLock:
    """Keeps a second broker out of a store, and tells whether the last one stopped cleanly.

    Args:
        root: the store's root folder.
        abort_path: the file that exists while a broker runs; its content is the process id.
    """

    def __init__(self, root: Path, abort_path: Path) -> None:
        self._path = root / "lock"
        self._abort_path = abort_path
        self._fd = -1

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            StoreError: another process has it, or the folder cannot be written.
        """
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"cannot open {self._path}: {error.strerror}") from error
        try:
            # The second kind is Java's and holds between processes only, the first one within a process too.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._fd)
            self._fd = -1
            raise StoreError(
                f"{self._path.parent} is in use by another broker; stop it or set storePathRootDir to another folder"
            ) from error
        os.pwrite(self._fd, b"lock", 0)

    @property
    def was_clean(self) -> bool:
        """Whether the last broker stopped cleanly."""
        return not self._abort_path.exists()

    def mark_running(self, pid: int) -> None:
        """Write the abort file to disk: without it the next start would trust what a crash left (blocks)."""
        self._abort_path.parent.mkdir(parents=True, exist_ok=True)
        write_synced(self._abort_path, str(pid).encode())
        sync_folder(self._abort_path.parent)

    def mark_stopped(self) -> None:
        """Remove the abort file (blocks)."""
        self._abort_path.unlink(missing_ok=True)
        sync_folder(self._abort_path.parent)

    def release(self) -> None:
        """Give the lock back."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
