"""The key-value configuration (org.apache.rocketmq.namesrv.kvconfig.KVConfigManager).

Kept in memory, and in ``kvConfig.json`` as ``{"configTable":{namespace:{key:value}}}``, with the previous state beside
it as ``kvConfig.json.bak``.
"""

import asyncio
import logging
from concurrent.futures import Executor
from pathlib import Path

import msgspec

from rocketbroker.codec.remoting.bodies.tables import KVTable
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.errors import CodecError
from rocketbroker.common.table_file import load_table

log = logging.getLogger(__name__)

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

Table = dict[str, dict[str, str]]


class _ConfigFile(msgspec.Struct, rename="camel"):
    config_table: Table


class KVConfigManager:
    """Key-value pairs by namespace.

    Args:
        path: the file of the configuration (kvConfigPath).
        executor: runs the writes, one at a time and in order (so it must have one thread).
    """

    def __init__(self, path: str, executor: Executor) -> None:
        self._path = Path(path)
        self._executor = executor
        self._table: Table = {}

    def load(self) -> None:
        """Read the file, else its ``.bak``, as ``load_table`` does; no file is an empty configuration.

        Raises:
            ConfigError: there are files, and none of them can be read.
        """
        self._table = load_table(self._path, _parse, len) or {}

    def get(self, namespace: str, key: str) -> str | None:
        """The value, ``None`` when there is none."""
        return self._table.get(namespace, {}).get(key)

    def encoded_namespace(self, namespace: str) -> bytes | None:
        """All pairs of a namespace as a KVTable, ``None`` when it was never used."""
        table = self._table.get(namespace)
        return None if table is None else KVTable(table).encode()

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value and store all of them.

        Raises:
            OSError: the file cannot be written; the value holds until the name server stops.
        """
        self._table.setdefault(namespace, {})[key] = value
        log.info("KV config %s/%s was set", namespace, key)
        await self._persist()

    async def delete(self, namespace: str, key: str) -> None:
        """Drop a value, if there is one, and store the rest; the namespace stays, as in RocketMQ.

        Raises:
            OSError: the file cannot be written; the value is gone until the name server stops.
        """
        if self._table.get(namespace, {}).pop(key, None) is None:
            return
        log.info("KV config %s/%s was deleted", namespace, key)
        await self._persist()

    async def _persist(self) -> None:
        data = msgspec.json.encode(_ConfigFile(self._table))
        await asyncio.get_running_loop().run_in_executor(self._executor, replace_contents, self._path, data)


def _parse(data: bytes) -> Table:
    try:
        return msgspec.json.decode(data, type=_ConfigFile).config_table
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        wanted = '{"configTable":{namespace:{key:value}}} is wanted'
        raise CodecError(f"no key-value configuration (kvConfigPath): {error}; {wanted}") from error
