"""File without a name, whose blocks are freed once nobody reads it.

RocketMQ counts the readers of a mapped file (ReferenceResource). Here the mapping counts them: it lives while slices of
it are being sent to consumers.
"""

import weakref
from pathlib import Path

from rocketbroker.common.file_system import FileSystem
from rocketbroker.common.shared_memory import Mapping

# Freeing a gibibyte at once would keep the file system's journal from the syncs of others.
_STEP = 64 * 1024 * 1024


class RemovedFile:
    """Keeps a removed file's blocks until ``release``, so that no other thread pays for freeing them.

    Args:
        path: its former path.
        fd: a descriptor of the file, which this object closes.
        size: size of the file in bytes.
        mapping: returns its mapping while anybody holds it.
        file_system: the disk.
    """

    __slots__ = ("_fd", "_file_system", "_mapping", "path", "size")

    def __init__(
        self, path: Path, fd: int, size: int, mapping: "weakref.ref[Mapping]", file_system: FileSystem
    ) -> None:
        self.path = path
        self.size = size
        self._fd = fd
        self._mapping = mapping
        self._file_system = file_system

    def release(self) -> bool:
        """Release the disk blocks if nobody reads the file any more (blocks); return false while somebody does.

        Raises:
            OSError: The disk failed.
        """
        if self._mapping() is not None:
            return False
        # It is no longer mapped, so shortening it kills nobody.
        for end in reversed(range(0, self.size, _STEP)):
            self._file_system.set_size(self._fd, end)
        self.close()
        return True

    def close(self) -> None:
        """Close the descriptor; the disk frees the blocks with the last one."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            self._file_system.close(fd)
