"""What is being made anew from the CommitLog: ``config/rebuild.json``, there as long as that goes on.

A crash on the way leaves queues and index half made below the offset up to which they would else be taken to be whole.
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
    """Says from which CommitLog offset on queues and index may be half made, and up to where the log was mended.

    ``found_from`` and ``found_mended_to`` are what a start left that did not come to its end; ``None`` and 0 without
    one. ``stands`` tells whether there is a note on disk.

    Args:
        path: the file.
        file_system: the disk.
    """

    def __init__(self, path: Path, file_system: FileSystem) -> None:
        self._path = path
        self._file_system = file_system
        self.found_from: int | None = None
        self.found_mended_to = 0
        self._mended_to = 0
        self.stands = False

    def load(self, told: list[str]) -> None:
        """Read the file (blocks); a damaged one, which ``told`` takes, has all made anew."""
        for path in (self._path, backup_of(self._path)):
            try:
                self.found_from, self.found_mended_to = _parse(loads_config(path.read_bytes()))
            except FileNotFoundError:
                continue
            except (OSError, CodecError, ValueError, TypeError, KeyError) as error:
                told.append(f"{path}: cannot be read, queues and index are made anew: {error}")
                self.found_from = 0
            self._mended_to, self.stands = self.found_mended_to, True
            return

    def write(self, from_offset: int, mended_to: int = 0) -> None:
        """Note it on disk before anything is changed (blocks).

        A disk that refuses does not keep the store from being opened: the note is for a crash before that is done.
        """
        self._mended_to = max(self._mended_to, mended_to)
        try:
            content = dumps_config({"from": from_offset, "mendedTo": self._mended_to})
            replace_contents(self._path, content, self._file_system)
        except OSError:
            log.exception("if the broker is killed before the store is open, delete consumequeue and index: no note")
        else:
            self.stands = True

    def remove(self) -> None:
        """All is made, and on disk (blocks).

        Raises:
            OSError: the disk refused; the next start makes it anew once more.
        """
        for path in (backup_of(self._path), self._path):
            if path.exists():
                self._file_system.unlink(path)
        self._file_system.sync_folder(self._path.parent)
        self.stands = False


def _parse(content: dict[str, object]) -> tuple[int, int]:
    from_offset, mended_to = content["from"], content["mendedTo"]
    if not isinstance(from_offset, int) or not isinstance(mended_to, int) or min(from_offset, mended_to) < 0:
        raise TypeError("from or mendedTo is no offset")
    return from_offset, mended_to
