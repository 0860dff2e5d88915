"""Protocol of an open store file, through which all code of this room reads.

Mapped files of the broker, local files (``common/local_file.py``) and remote files implement it.
"""

from typing import Protocol


class StoreFile(Protocol):
    """An open file of ``size`` bytes. A read returns fewer bytes than requested only at the file's end."""

    @property
    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``."""

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` and return the number of bytes read."""
