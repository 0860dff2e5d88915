"""``config/rebuild.json``: the part of the store that is being rebuilt from the CommitLog, until that is done.

A crash meanwhile leaves queues and index incomplete before the offset up to which they would otherwise count as
complete.
"""

import logging
from pathlib import Path

from rocketbroker.codec.storefile.config_json import dumps_config, loads_config
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import CodecError
from rocketbroker.common.file_system import FileSystem

log = logging.getLogger(__name__)

FILE_NAME = "rebuild.json"


class RebuildNote:
    """CommitLog offsets from which queues and index may be incomplete, and up to which the log was repaired.

    Args:
        path: the file.
        file_system: the disk.

    Attributes:
        found_from: the first offset of a start that did not finish, ``None`` without one.
        found_mended_to: the second offset of such a start, 0 without one.
        stands: true while a note is on disk.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self.found_from: int | None = None
        self.found_mended_to = 0
        self._mended_to = 0
        self.stands = False

    def load(self, findings: list[str]) -> None:
        """Read the file (blocks); report a damaged one in ``findings``, and have everything rebuilt."""
        for path in (self._path, backup_of(self._path)):
            try:
                self.found_from, self.found_mended_to = _parse(loads_config(path.read_bytes()))
            except FileNotFoundError:
                continue
            except (OSError, CodecError, ValueError, TypeError, KeyError) as error:
                findings.append(f"{path}: unreadable, so that queues and index are rebuilt: {error}")
                self.found_from = 0
            self._mended_to, self.stands = self.found_mended_to, True
            return

    def write(self, from_offset: int, mended_to: int = 0) -> None:
        """Write the note to disk, before anything is changed (blocks).

        A failed write does not keep the store from opening: the note is for a crash before the store is open.
        """
        self._mended_to = max(self._mended_to, mended_to)
        try:
            content = dumps_config({"from": from_offset, "mendedTo": self._mended_to})
            replace_contents(self._path, content, self._file_system)
        except OSError:
            log.exception(
                "%s could not be written; if the broker is killed before the store is open, delete the folders "
                "consumequeue and index",
                self._path,
            )
        else:
            self.stands = True

    def remove(self) -> None:
        """Remove the note once everything is rebuilt and on disk (blocks).

        Raises:
            OSError: The note could not be removed; the next start rebuilds that part again.
        """
        for path in (backup_of(self._path), self._path):
            if path.exists():
                self._file_system.unlink(path)
        self._file_system.sync_folder(self._path.parent)
        self.stands = False


def _parse(content: dict[str, object]) -> tuple[int, int]:
    from_offset, mended_to = content["from"], content["mendedTo"]
    if not isinstance(from_offset, int) or not isinstance(mended_to, int) or min(from_offset, mended_to) < 0:
        raise TypeError("from or mendedTo is not an offset")
    return from_offset, mended_to
