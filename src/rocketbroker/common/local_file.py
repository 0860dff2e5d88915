"""Local file that is open for reading by position."""

import os
from collections.abc import Callable, Sequence
from types import TracebackType

from rocketbroker.common.errors import StoreError

#: Makes the error to raise if the system cannot open or read a file.
Refusal = Callable[[OSError], StoreError]


class LocalFile:
    """A file by its descriptor, which it owns and closes at the end of a ``with`` block or by ``close``.

    It implements ``codec.storefile.store_file.StoreFile``.

    Args:
        path: the file.
        refusal: makes the error to raise if the file cannot be opened or read.

    Raises:
        StoreError: The file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], refusal: Refusal) -> None:
        self._refusal = refusal
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise refusal(error) from error

    def __enter__(self) -> "LocalFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def size(self) -> int:
        """Bytes of the file as it is now."""
        return os.fstat(self._fd).st_size

    def read_at(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``, fewer at the file's end."""
        parts = []
        try:
            while length > 0 and (part := os.pread(self._fd, length, position)):
                parts.append(part)
                position, length = position + len(part), length - len(part)
        except OSError as error:
            raise self._refusal(error) from error
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fill ``buffer`` from ``position`` and return the number of bytes read."""
        done = 0
        try:
            while done < len(buffer) and (count := os.preadv(self._fd, [buffer[done:]], position + done)):
                done += count
        except OSError as error:
            raise self._refusal(error) from error
        return done

    def read_each(self, positions: Sequence[int], length: int) -> bytes:
        """Return ``length`` bytes from each of ``positions``, with zeros after the end of the file."""
        pread, fd = os.pread, self._fd  # thousands of reads: the cost of each statement counts
        try:
            parts = [pread(fd, length, position) for position in positions]
        except OSError as error:
            raise self._refusal(error) from error
        whole = b"".join(parts)
        if len(whole) == len(parts) * length:
            return whole
        return b"".join(self.read_at(position, length).ljust(length, b"\0") for position in positions)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._fd)
