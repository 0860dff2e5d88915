"""Access to a store folder: the files ``lock`` and ``abort``, and parts that this broker cannot read."""

import fcntl
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rocketbroker.common.atomic_file import write_synced
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem, parents_of
from rocketbroker.common.open_files import why_refused

# Parts of a store of Apache's that this broker cannot read, recognised by their files.
#
# A start beside them would not fail: it would find no tables or no log, and begin empty ones. So it is refused before
# anything is written.

# Each RocksDB database has this file, which names its manifest.
_ROCKSDB_MARK: Final = "CURRENT"


class ForeignPart(NamedTuple):
    """A folder that this broker cannot read; ``problem`` says what is in it and what to do."""

    path: Path
    problem: str


def foreign_parts(root: Path) -> Iterator[ForeignPart]:
    """Return the parts of a store folder that this broker cannot read."""
    config_dir = root / "config"
    for mark in sorted(config_dir.glob(f"*/{_ROCKSDB_MARK}")):
        yield ForeignPart(
            mark.parent,
            "is a RocksDB database (storeType=defaultRocksDB, or configManagerVersion=v2), which this broker cannot "
            "read: topics, groups or offsets are in it. Write them to topics.json, subscriptionGroup.json and "
            f"consumerOffset.json in {config_dir} by rocksDBConfigToJson of Apache's mqadmin, then move this folder "
            "away (docs/how-to/migrate-a-store.md)",
        )
    for data in sorted(root.glob("dledger-*/data")):
        if any(data.iterdir()):
            yield ForeignPart(
                data,
                "is the log of a DLedger group (enableDLegerCommitLog=true), which this broker cannot read. Let "
                "Apache's brokers serve until its messages are consumed, or replay them with a client to this broker "
                "with an empty store (docs/how-to/migrate-a-store.md)",
            )


def check_readable(root: Path) -> None:
    """Check that this broker can read all parts of a store.

    Raises:
        StoreError: It cannot; the text names each part.
    """
    try:
        texts = [f"{part.path} {part.problem}" for part in foreign_parts(root)]
    except OSError as error:
        raise StoreError(f"{root} (storePathRootDir) cannot be read: {error}") from error
    if texts:
        raise StoreError("; ".join(texts))


#: Content of the lock file once the store is recovered. RocketMQ writes it at once: it recovers before it locks.
LOCKED = b"lock"
# Content until then; of the same length, since the file is not truncated.
_OPENING = b"open"


class StoreLock:
    """Lock that keeps a second broker out of a store, and the mark of an unclean stop.

    Args:
        abort_path: the file that exists while a broker runs; its content is the process id.
    """

    def __init__(self, root: Path, abort_path: Path, file_system: FileSystem = LOCAL) -> None:
        self._file_system = file_system
        self._path = root / "lock"
        self._abort_path = abort_path
        self._fd = -1
        # The last broker stopped cleanly; known once the lock is acquired.
        self.was_clean = True

    def acquire(self) -> None:
        """Acquire the lock unless this object holds it.

        Raises:
            StoreError: Another process holds it, the folder cannot be written, or has parts that cannot be read.
        """
        if self._fd >= 0:
            return
        check_readable(self._path.parent)
        try:
            self._file_system.make_folders(self._path.parent)
            self._fd = self._file_system.open(self._path)
        except OSError as error:
            raise StoreError(f"cannot open {self._path}: {why_refused(error)}") from error
        try:
            # The second lock is RocketMQ's, and excludes other processes only; the first one excludes this process too.
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file_system.close(self._fd)
            self._fd = -1
            raise StoreError(
                f"{self._path.parent} is in use by another broker; stop it or set storePathRootDir to another folder"
            ) from error
        self.was_clean = not self._abort_path.exists()
        self._file_system.write(self._fd, 0, _OPENING)

    def note_open(self) -> None:
        """Write to the file that the store is recovered, for readers beside the broker (blocks)."""
        self._file_system.write(self._fd, 0, LOCKED)

    def mark_running(self, pid: int) -> None:
        """Write the abort file to disk (blocks): without it the next start would trust what a crash left.

        Raises:
            StoreError: The file cannot be written.
        """
        try:
            self._file_system.make_folders(self._abort_path.parent)
            write_synced(self._abort_path, str(pid).encode(), self._file_system)
            # Includes folders that a start created before it failed here.
            for folder in {*parents_of(self._abort_path), *parents_of(self._path)}:
                self._file_system.sync_folder(folder)
        except OSError as error:
            raise StoreError(f"cannot write {self._abort_path}: {why_refused(error)}") from error

    def mark_stopped(self) -> None:
        """Remove the abort file (blocks)."""
        self._file_system.unlink(self._abort_path)
        self._file_system.sync_folder(self._abort_path.parent)

    def release(self) -> None:
        """Release the lock."""
        if self._fd >= 0:
            self._file_system.close(self._fd)
            self._fd = -1
