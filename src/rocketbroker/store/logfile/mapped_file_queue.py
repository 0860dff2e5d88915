"""Files of equal size that follow each other (org.apache.rocketmq.store.MappedFileQueue).

A file's name is the offset of its first byte, as 20 digits. Threads iterate over ``files``, so the list only grows in
place; a shorter or changed list replaces it.
"""

from pathlib import Path

from rocketbroker.codec.storefile.store_file import offset_to_file_name
from rocketbroker.common.errors import StoreError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.logfile.mapped_file import MappedFile


class MappedFileQueue:
    """The files of one directory, in order.

    Args:
        step: bytes allocated at a time.
        keeps_open: true if each file keeps a descriptor (``MappedFile``).
    """

    __slots__ = ("_keeps_open", "directory", "file_size", "file_system", "files", "step")

    def __init__(
        self,
        directory: Path,
        file_size: int,
        step: int = 0,
        file_system: FileSystem = LOCAL,
        *,
        keeps_open: bool = True,
    ) -> None:
        self._keeps_open = keeps_open
        self.file_system = file_system
        self.directory = directory
        self.file_size = file_size
        self.step = step
        self.files: list[MappedFile] = []

    def load(self) -> None:
        """Map the files that exist, and treat each as written to its end.

        Raises:
            StoreError: A file has another size, or one is missing between two others.
        """
        if not self.directory.is_dir():
            return
        for path in sorted(p for p in self.directory.iterdir() if p.name.isdigit() and len(p.name) == 20):
            if path.stat().st_size == 0:
                # Created but not grown to its size: a crash came between.
                self.file_system.unlink(path)
                continue
            file = self._map(path)
            self.files.append(file)
            before = self.files[-2] if len(self.files) > 1 else None
            if before is not None and file.file_from_offset != (end := before.file_from_offset + self.file_size):
                raise StoreError(f"{file.path} does not follow {before.path}: {self.path_of(end)} is missing")
            file.wrote = file.flushed = file.file_size

    @property
    def min_offset(self) -> int:
        """Offset of the first byte in the files."""
        files = self.files
        return files[0].file_from_offset if files else 0

    @property
    def max_offset(self) -> int:
        """Offset after the last byte written."""
        # Read the list once: another thread may take out the last file.
        files = self.files
        if not files:
            return 0
        last = files[-1]
        return last.file_from_offset + last.wrote

    @property
    def max_file_end(self) -> int:
        """Offset at which the next file will begin."""
        return self.files[-1].file_from_offset + self.file_size if self.files else 0

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that holds the byte at an offset, if any."""
        # Read the list once: the loop may take out the first file while another thread reads.
        files = self.files
        if not files:
            return None
        index = (offset - files[0].file_from_offset) // self.file_size
        return files[index] if 0 <= index < len(files) else None

    def path_of(self, offset: int) -> Path:
        """Return the path of the file that begins at an offset."""
        return self.directory / offset_to_file_name(offset)

    def append(self, file: MappedFile) -> None:
        """Add the file that follows the last one."""
        self.files.append(file)

    def create_next(self, offset: int | None = None) -> MappedFile:
        """Create and add the next file; ``offset`` is the begin of the first one.

        Raises:
            StoreFullError: The disk has no room for it.
        """
        if self.files:
            offset = self.files[-1].file_from_offset + self.file_size
        file = self._map(self.path_of(offset or 0))
        self.files.append(file)
        return file

    def make_room(self, start: int, end: int) -> None:
        """Allocate blocks for bytes that follow the written ones, and files after the last one.

        Raises:
            StoreFullError: The disk has no room.
            StoreError: A file cannot be created.
        """
        while not self.files or self.max_file_end < end:
            self.create_next()
        for position in range(start - start % self.file_size, end, self.file_size):
            file = self.find(position)
            if file is not None:
                file.ensure_allocated(min(end - file.file_from_offset, self.file_size))

    def _map(self, path: Path) -> MappedFile:
        return MappedFile(path, self.file_size, self.step, self.file_system, keeps_open=self._keeps_open)

    def take_out(self, file: MappedFile) -> None:
        """Take the first file out of service; only on the event loop, where files are added too. The last one stays."""
        if len(self.files) > 1 and self.files[0] is file:
            self.files = self.files[1:]

    def remove_from(self, offset: int) -> None:
        """Remove the files that begin at or after an offset, the last one first (blocks); the first file stays.

        Holders of a removed file or of a slice of it keep reading.

        Raises:
            OSError: The disk failed; the call may be made again.
        """
        while len(self.files) > 1 and (last := self.files[-1]).file_from_offset >= offset:
            # The name is removed first: a file that the disk keeps must stay in the list, or nobody would remove it.
            removed = last.remove()
            self.files = self.files[:-1]
            removed.close()

    def replace_last(self, file: MappedFile) -> None:
        """Replace the last file by another one; its readers keep the old one."""
        self.files = [*self.files[:-1], file]

    def truncate(self, offset: int) -> None:
        """Discard the bytes from ``offset`` on (blocks): remove whole files, and zero the rest for a rewrite.

        Raises:
            OSError: The disk failed; the call may be made again.
        """
        self.remove_from(offset)
        if not self.files:
            return
        last = self.files[-1]
        last.wrote = max(0, min(offset - last.file_from_offset, last.file_size))
        last.flushed = min(last.flushed, last.wrote)
        last.zero_from(last.wrote)

    def unsynced_from(self, offset: int) -> None:
        """Treat the bytes from ``offset`` on as written but not on disk, whatever a sync reports.

        An earlier process may have seen a sync fail; the kernel reports that only once.
        """
        for file in self.files:
            file.flushed = max(0, min(file.flushed, offset - file.file_from_offset))
            file.to_write_again = file.flushed < file.wrote

    def moved(self, directory: Path) -> None:
        """Adopt the new name of the directory; the files stay mapped."""
        self.directory = directory
        for file in self.files:
            file.path = directory / file.path.name

    def delete_all(self) -> None:
        """Close and remove all files, and their directory unless damaged files were set aside in it."""
        for file in self.files:
            file.delete()
        self.files = []
        if self.directory.is_dir() and not any(self.directory.iterdir()):
            self.file_system.remove_folder(self.directory)

    def close(self) -> None:
        """Release all mappings."""
        for file in self.files:
            file.close()
        self.files = []
