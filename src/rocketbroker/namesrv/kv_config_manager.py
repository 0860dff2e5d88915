"""Key-value configuration (org.apache.rocketmq.namesrv.kvconfig.KVConfigManager).

Kept in memory and in ``kvConfig.json`` as ``{"configTable":{namespace:{key:value}}}``, with the previous state in
``kvConfig.json.bak``.
"""

import asyncio
import logging
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable
from rocketbroker.codec.remoting.frame import FRAME_MAX_LENGTH
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.atomic_file import load_table, replace_contents
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError, shown

_COLON_AND_COMMA = 2


@dataclass(slots=True)
class _Namespace:
    pairs: dict[str, str] = field(default_factory=dict)
    size: int = 0


def text_size(text: str) -> int:
    """Return the size of a text in JSON, quotes included."""
    return len(msgspec.json.encode(text))


def pair_size(key: str, value: str) -> int:
    """Return the size of a pair in a body."""
    return text_size(key) + text_size(value) + _COLON_AND_COMMA


class KVNamespaces:
    """Pairs by namespace.

    ``entries`` counts pairs and namespaces; a namespace outlives its last pair. ``size`` is in bytes.
    """

    def __init__(self, table: dict[str, dict[str, str]] | None = None) -> None:
        self._spaces: dict[str, _Namespace] = {}
        self.entries = 0
        self.size = 0
        for namespace, pairs in (table or {}).items():
            self._space(namespace)
            for key, value in pairs.items():
                self.put(namespace, key, value)

    def _space(self, namespace: str) -> _Namespace:
        space = self._spaces.get(namespace)
        if space is None:
            space = self._spaces[namespace] = _Namespace()
            self.entries += 1
            self.size += pair_size(namespace, "")
        return space

    def has(self, namespace: str) -> bool:
        """Return true if a namespace was ever used."""
        return namespace in self._spaces

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value, or ``None``."""
        space = self._spaces.get(namespace)
        return None if space is None else space.pairs.get(key)

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value."""
        space = self._space(namespace)
        old = space.pairs.get(key)
        if old is None:
            self.entries += 1
        more = pair_size(key, value) - (0 if old is None else pair_size(key, old))
        space.pairs[key] = value
        space.size += more
        self.size += more

    def delete(self, namespace: str, key: str) -> bool:
        """Remove a value; return false if there was none."""
        space = self._spaces.get(namespace)
        value = None if space is None else space.pairs.pop(key, None)
        if space is None or value is None:
            return False
        size = pair_size(key, value)
        space.size -= size
        self.size -= size
        self.entries -= 1
        return True

    def entries_of(self, namespace: str) -> int:
        """Return the number of pairs in a namespace."""
        return len(self._spaces[namespace].pairs) if namespace in self._spaces else 0

    def size_of(self, namespace: str) -> int:
        """Return the encoded size of a namespace."""
        return self._spaces[namespace].size if namespace in self._spaces else 0

    def encoded(self, namespace: str) -> bytes:
        """Encode all pairs of a namespace as a KVTable."""
        return KVTable(self._spaces[namespace].pairs).encode()

    def encoded_part(self, namespace: str, most_bytes: int) -> tuple[bytes, list[str]]:
        """Encode as many pairs as fit ``most_bytes``, small ones first; return the KVTable and the omitted keys."""
        pairs = self._spaces[namespace].pairs
        sizes = sorted((pair_size(key, value), key) for key, value in pairs.items())
        left_out: list[str] = []
        for size, key in sizes:
            most_bytes -= size
            if most_bytes < 0:
                left_out.append(key)
        dropped = set(left_out)
        kept = {key: value for key, value in pairs.items() if key not in dropped}
        return KVTable(kept).encode(), left_out

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return all pairs, for the file."""
        return {namespace: space.pairs for namespace, space in self._spaces.items()}


log = logging.getLogger(__name__)

NAMESPACE_ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"

# A namespace is sent as a whole or not at all; leaves room for the header in a frame.
_LARGEST_LIST = FRAME_MAX_LENGTH - 65_536
_MOST_NAMED = 5

Table = dict[str, dict[str, str]]


class _ConfigFile(msgspec.Struct, rename="camel"):
    config_table: Table


class KVConfigManager:
    """Key-value pairs by namespace, within the limits of the settings.

    A file that exceeds the limits is loaded as it is; only new pairs are rejected.

    Args:
        config: file (kvConfigPath) and limits, read at each use.
        executor: runs the writes in order, so it must have one thread.
    """

    def __init__(self, config: NamesrvConfig, executor: Executor) -> None:
        self._config = config
        self._path = Path(config.kv_config_path)
        self._executor = executor
        self._table = KVNamespaces()
        self._order_topics: tuple[int, bytes] | None = None
        self._changes = 0
        self._written = 0
        self._writing = asyncio.Lock()

    def load(self) -> None:
        """Load the file or its ``.bak`` by ``load_table``; without a file the configuration is empty.

        Raises:
            ConfigError: Files exist, but none can be read.
        """
        self._table = KVNamespaces(load_table(self._path, _parse, len))
        self._order_topics = None

    def get(self, namespace: str, key: str) -> str | None:
        """Return the value, or ``None``."""
        return self._table.get(namespace, key)

    def order_topic_conf(self, topic: str) -> str | None:
        """Return a topic's value in ORDER_TOPIC_CONFIG for routes, unless it exceeds maxKvValueSize."""
        value = self._table.get(NAMESPACE_ORDER_TOPIC_CONFIG, topic)
        return value if value is not None and len(value) <= self._config.max_kv_value_size else None

    def encoded_namespace(self, namespace: str) -> bytes | None:
        """Return all pairs of a namespace as a KVTable, or ``None`` if it was never used.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the pairs do not fit a frame, as in a file from elsewhere.
        """
        if not self._table.has(namespace):
            return None
        if self._table.size_of(namespace) > _LARGEST_LIST:
            text = (
                f"the pairs of namespace {shown(namespace)} have {self._table.size_of(namespace):,} bytes, more than a "
                "frame can carry; delete some of them (DELETE_KV_CONFIG) and ask again"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, text)
        return self._table.encoded(namespace)

    def encoded_order_topics(self) -> bytes:
        """Return ORDER_TOPIC_CONFIG for the answer to a registration, cut to maxKvNamespaceSize."""
        limit = self._config.max_kv_namespace_size
        if not self._table.has(NAMESPACE_ORDER_TOPIC_CONFIG):
            return b""
        if self._order_topics is None or self._order_topics[0] != limit:
            body, left_out = self._table.encoded_part(NAMESPACE_ORDER_TOPIC_CONFIG, limit)
            if left_out:
                text = (
                    "%s exceeds maxKvNamespaceSize (%d bytes): brokers do not learn of %d of its %d topics, such as %s"
                )
                named = ", ".join(shown(key) for key in left_out[-_MOST_NAMED:])
                count = self._table.entries_of(NAMESPACE_ORDER_TOPIC_CONFIG)
                log.warning(text, NAMESPACE_ORDER_TOPIC_CONFIG, limit, len(left_out), count, named)
            self._order_topics = limit, body
        return self._order_topics[1]

    async def put(self, namespace: str, key: str, value: str) -> None:
        """Set a value and store all of them.

        Raises:
            BrokerResponseError: INVALID_PARAMETER; the value exceeds a limit.
            OSError: The file cannot be written; the value stays in memory.
        """
        self._check_room(namespace, key, value)
        self._table.put(namespace, key, value)
        log.info("KV config %s/%s was set", shown(namespace), shown(key))
        await self._persist()

    def _check_room(self, namespace: str, key: str, value: str) -> None:
        config, table = self._config, self._table
        _check("maxKvValueSize", text_size(value), config.max_kv_value_size, "bytes of the value")
        old = table.get(namespace, key)
        if old is None:
            more = 1 if table.has(namespace) else 2
            _check("maxKvEntries", table.entries + more, config.max_kv_entries, "keys and namespaces")
            entries = table.entries_of(namespace) + 1
            _check("maxKvEntriesPerNamespace", entries, config.max_kv_entries_per_namespace, "keys of the namespace")
        grown = pair_size(key, value) - (0 if old is None else pair_size(key, old))
        if grown > 0:
            size = table.size_of(namespace) + grown
            _check("maxKvNamespaceSize", size, config.max_kv_namespace_size, "bytes of the namespace")
            _check("maxKvConfigSize", table.size + grown, config.max_kv_config_size, "bytes of all namespaces")

    async def delete(self, namespace: str, key: str) -> None:
        """Remove a value, if any, and store the rest; the namespace stays, as in RocketMQ.

        Raises:
            OSError: The file cannot be written; the value is removed from memory only.
        """
        if not self._table.delete(namespace, key):
            return
        log.info("KV config %s/%s was deleted", shown(namespace), shown(key))
        await self._persist()

    async def _persist(self) -> None:
        """Wait for a write that began after the change; changes during a write share the next one."""
        self._order_topics = None
        self._changes += 1
        change = self._changes
        async with self._writing:
            if self._written >= change:
                return
            written = self._changes
            data = msgspec.json.encode(_ConfigFile(self._table.as_dict()))
            await asyncio.get_running_loop().run_in_executor(self._executor, replace_contents, self._path, data)
            self._written = written


def _check(setting: str, value: int, limit: int, what: str) -> None:
    if value > limit:
        text = f"{setting}: {value:,} {what} exceed the limit of {limit:,}; delete or shorten some, or raise {setting}."
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, text)


def _parse(data: bytes) -> Table:
    try:
        return msgspec.json.decode(data, type=_ConfigFile).config_table
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        wanted = 'expected {"configTable":{namespace:{key:value}}}'
        raise CodecError(f"not a key-value configuration (kvConfigPath): {error}; {wanted}") from error
