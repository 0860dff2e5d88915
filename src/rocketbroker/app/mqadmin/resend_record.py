"""Record of ``mqadmin resendDlq``: the dead letters of a group that were sent again.

It is a file of JSON lines, on disk before and after each send:

    sending   a dead letter is about to be sent; without a later line nobody knows whether it was
    sent      its send was acknowledged
    failed    its send was rejected
    recalled  its copy was cancelled before its delivery (--undo)

The last line of a dead letter counts. Ids are addresses and offsets, which a broker with an empty store gives again. So
a dead letter is known by its id, its unique key and its store time.
"""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple
from urllib.parse import quote

import msgspec

from rocketbroker.app.mqadmin.message_files import lock
from rocketbroker.common.errors import ConfigError, StoreError


class LetterId(NamedTuple):
    """Identity of a dead letter: its offset message id, its unique key or empty, and its store time in ms."""

    dlq_msg_id: str
    uniq_key: str
    stored: int


class RecordLine(msgspec.Struct, rename="camel", omit_defaults=True):
    """A line of the record; ``time``, ``stored`` and ``deliver_at`` in ms."""

    state: str
    dlq_msg_id: str
    time: int
    uniq_key: str = ""
    stored: int = 0
    topic: str = ""
    msg_id: str = ""
    recall_handle: str = ""
    deliver_at: int = 0
    error: str = ""

    @property
    def letter(self) -> LetterId:
        """The dead letter of the line."""
        return LetterId(self.dlq_msg_id, self.uniq_key, self.stored)


def record_path(clusters: str, group: str, environment: Mapping[str, str]) -> Path:
    """Return the file for a group's record, the same in every working directory.

    Args:
        clusters: name of the cluster that has the dead letters.
        group: consumer group.
        environment: variables of the process; ``XDG_STATE_HOME`` is the folder for such files.
    """
    base = Path(environment.get("XDG_STATE_HOME", ""))
    folder = base if base.is_absolute() else Path.home() / ".local" / "state"
    return folder / "rocketbroker" / "resendDlq" / quote(clusters, safe="") / f"{quote(group, safe='')}.jsonl"


class Record:
    """The record of what was sent of a group's dead letters.

    Args:
        path: the file; it need not exist.
        writes: lock it for this run, and permit ``add``.

    Raises:
        ConfigError: it has lines of another kind, cannot be opened, or another run writes it.
    """

    def __init__(self, path: Path, *, writes: bool) -> None:
        self.path = path
        self.last: dict[LetterId, RecordLine] = {}
        self._file: IO[bytes] | None = None
        try:
            if writes:
                path.parent.mkdir(parents=True, exist_ok=True)
                self._file = path.open("a+b")
                # Read under the lock: another run may have sent some meanwhile.
                lock(self._file.fileno(), path)
                self._file.seek(0)
                lines = self._file.readlines()
            else:
                lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
            size = self._load(lines)
            if self._file is not None:
                self._file.truncate(size)
        except OSError as error:
            self.close()
            raise ConfigError(f"--record {path}: {error.strerror}") from error
        except ConfigError:
            self.close()
            raise

    def _load(self, lines: list[bytes]) -> int:
        """Take the lines, and return the size of those that are whole."""
        size = 0
        for number, line in enumerate(lines, 1):
            try:
                found = msgspec.json.decode(line, type=RecordLine)
            except msgspec.DecodeError as error:
                if number == len(lines) and not line.endswith(b"\n"):
                    break  # cut off by a kill: the line before it is "sending"
                raise ConfigError(
                    f"--record {self.path} is no record of resendDlq, in line {number}: {error}; name another file"
                ) from error
            self.last[found.letter] = found
            size += len(line)
        return size

    def add(self, line: RecordLine) -> None:
        """Write a line, and wait until it is on disk.

        Raises:
            StoreError: it cannot be written.
        """
        if self._file is None:
            raise StoreError(f"--record {self.path} was opened to be read only")
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise StoreError(f"--record {self.path}: {error.strerror}") from error
        self.last[line.letter] = line

    def state_of(self, letter: LetterId) -> str:
        """Return the last state of a dead letter, empty if it has none."""
        found = self.last.get(letter)
        return found.state if found is not None else ""

    def close(self) -> None:
        """Close the file."""
        if self._file is None:
            return
        file, self._file = self._file, None
        with suppress(OSError):  # a full disk: only the line that ``add`` could not write is left in the buffer
            file.close()
