"""Tables that live in ``config/*.json`` (org.apache.rocketmq.common.ConfigManager).

The event loop owns each table. ``persist`` marks it as changed; ``ConfigPersistService`` encodes changed tables on the
loop and writes them on a thread of its own (``replace_contents``), so that at any moment the file or its ``.bak`` is
whole.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable, body_from
from rocketbroker.codec.storefile.config_json import loads_config
from rocketbroker.common.atomic_file import backup_of, replace_contents
from rocketbroker.common.errors import CodecError, ConfigError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

RETRY_S = 5.0

T = TypeVar("T")


class ConfigManager(ABC):
    """One table and its file.

    Args:
        path: the file; its folder is created when first written.
        on_persist: told each time the table is to be written (``ConfigPersistService.submit``); ``None`` keeps it in
            memory only.
    """

    def __init__(self, path: Path, on_persist: "Callable[[ConfigManager], None] | None" = None) -> None:
        self.path = path
        self._on_persist = on_persist

    @abstractmethod
    def encode(self) -> bytes:
        """The table as the file holds it."""

    @abstractmethod
    def decode(self, data: bytes) -> None:
        """Replace or fill the table from a file's content; leaves it as it was when it raises.

        Raises:
            CodecError: this is no such table.
        """

    def persist(self) -> None:
        """Have the table written soon."""
        if self._on_persist is not None:
            self._on_persist(self)

    def load(self) -> bool:
        """Read the file, else its ``.bak``; a damaged file is set aside as ``<file>.damaged``.

        Returns:
            Whether there was anything to read.

        Raises:
            ConfigError: there are files and none of them can be read, so that starting would lose the table.
        """
        damage = self._try_load(self.path)
        if damage is None:
            return True
        backup = backup_of(self.path)
        backup_damage = self._try_load(backup)
        if backup_damage is None:
            log.error("%s, its backup %s was loaded instead", damage or f"{self.path} is missing", backup.name)
            if damage:
                self.path.replace(self.path.with_name(self.path.name + ".damaged"))
            return True
        if damage or backup_damage:
            raise ConfigError(
                f"{damage or f'{self.path} is missing'}; {backup_damage or f'there is no {backup.name}'}: "
                "repair the file, or remove it to start with an empty table"
            )
        return False

    def _try_load(self, path: Path) -> str | None:
        """Decode one file: ``None`` when that worked, "" when there is no file, else what is wrong with it."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{path} cannot be read: {error.strerror}"
        if not data.strip():
            return f"{path} is empty"
        try:
            self.decode(data)
        except CodecError as error:
            return f"{path} is damaged: {error}"
        return None


def encode_file(table: RemotingSerializable) -> bytes:
    """A table as fastjson pretty-prints it: TABs, fields by alphabet, integer keys without quotes."""
    return fastjson.dumps(table, indent="\t")


def decode_file(data: bytes, file_type: type[T]) -> T:
    """The struct that a file's content makes.

    Raises:
        CodecError: it is no JSON object, or a field is missing or of the wrong type; the text names it.
    """
    return body_from(loads_config(data), file_type)


class ConfigPersistService:
    """Writes changed tables, one after the other; changes that come while one is written make one further write."""

    def __init__(self) -> None:
        self._changed: dict[Path, ConfigManager] = {}
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = TaskOwner("ConfigPersistService")
        self._executor: ThreadPoolExecutor | None = None

    def submit(self, manager: ConfigManager) -> None:
        """Have a table written soon; cheap, and callable before ``start``."""
        self._changed[manager.path] = manager
        self._idle.clear()
        self._wake.set()

    async def start(self) -> None:
        """Start writing."""
        self._executor = ThreadPoolExecutor(1, "ConfigPersistService")
        self._tasks.start(self._run(), "run")

    async def drain(self) -> None:
        """Wait until all that was submitted before is on disk, or its failure in the log."""
        await self._idle.wait()

    async def stop(self) -> None:
        """Write what is still to be written and end the thread."""
        await self._tasks.stop()
        if self._executor is not None:
            await self._write_changed()
            self._executor.shutdown()
            self._executor = None
        self._idle.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._write_changed()
            if self._wake.is_set():
                continue
            self._idle.set()
            if self._changed:  # these failed: the disk may have room again after a while
                await asyncio.sleep(RETRY_S)
                self._wake.set()

    async def _write_changed(self) -> None:
        for path in list(self._changed):
            await self._write(path, self._changed.pop(path))

    async def _write(self, path: Path, manager: ConfigManager) -> None:
        try:
            data = manager.encode()
            await asyncio.get_running_loop().run_in_executor(self._executor, replace_contents, path, data)
        except asyncio.CancelledError:  # at stop: the thread goes on with this write, and is given it once more
            self._changed.setdefault(path, manager)
            raise
        except ValueError:  # the other tables are still to be written, and this one may become right again
            log.exception("%s cannot be encoded; it is tried again with its next change", path)
        except OSError as error:
            log.error("%s cannot be written: %s; it is tried again", path, error.strerror)  # noqa: TRY400
            self._changed.setdefault(path, manager)
