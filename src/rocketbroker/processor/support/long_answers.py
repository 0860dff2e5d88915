"""Answers that take long: pages of tables, turns for other requests, encoding off the event loop."""

import asyncio
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Executor
from itertools import islice
from typing import TypeVar

from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, RemotingSerializable
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, CodecError

# Longest time that work blocks the event loop.
HELD_S = 0.01

# Entries handled in one turn of the event loop, at a few microseconds each.
_PER_TURN = 1_000

K = TypeVar("K")
V = TypeVar("V")


def parts_of(table: Mapping[K, V]) -> Iterator[dict[K, V]]:
    """Split a table into parts that each fit into one turn of the event loop."""
    entries = iter(table.items())
    while part := dict(islice(entries, _PER_TURN)):
        yield part


class LoopShare:
    """The share of the loop that one request takes at a time."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def turn(self) -> None:
        """Let others run if this request has blocked the event loop for long enough."""
        if time.perf_counter() - self._since > HELD_S:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


# splitMetadataSize of RocketMQ: no page has more.
MAX_PAGE = 2000

T = TypeVar("T")


def page_of(
    table: Mapping[str, T], version: DataVersion, seen_version: str | None, first: int | None, size: int | None
) -> dict[str, T]:
    """Return the entries from number ``first`` on, sorted; the whole table if the request named no page.

    Args:
        table: all entries.
        version: version of the table.
        seen_version: version of the table when the client got its first page, as JSON. The pages restart if the version
            has changed, so that a client never joins pages of different tables.
        first: number of the first entry wanted.
        size: most entries wanted.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if a field is out of range or ``seen_version`` is not a DataVersion.
    """
    if seen_version is None and first is None and size is None:
        return dict(table)
    start = _checked("first entry", first or 0, 0) if _unchanged(version, seen_version) else 0
    count = min(_checked("page size", MAX_PAGE if size is None else size, 1), MAX_PAGE)
    return {name: table[name] for name in sorted(table)[start : start + count]}


def _checked(what: str, value: int, low: int) -> int:
    if value < low:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"the {what} {value} is illegal; use {low} or more")
    return value


def _unchanged(version: DataVersion, seen_version: str | None) -> bool:
    if not seen_version or not seen_version.strip():
        return False
    try:
        return DataVersion.decode(seen_version.encode()) == version
    except CodecError as error:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"dataVersion of the request: {error}") from None


# Entries that are encoded in a few milliseconds.
_FEW = 500


class AnswerEncoder:
    """Encodes bodies that may be long.

    Args:
        config: ``maxEntriesPerAnswer``.
        executor: thread that encodes one answer at a time, so that the loop competes with one thread only.
    """

    def __init__(self, config: BrokerConfig, executor: Executor) -> None:
        self._config = config
        self._executor = executor

    def check(self, entries: int) -> None:
        """Check the number of entries (queues, clients, offsets) before they are collected.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many for one answer.
        """
        limit = self._config.max_entries_per_answer
        if entries > limit:
            remark = (
                f"maxEntriesPerAnswer: {entries:,} entries exceed the limit of {limit:,}; ask for fewer topics or "
                "groups at a time or raise maxEntriesPerAnswer"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)

    async def encode(self, body: RemotingSerializable, entries: int) -> bytes:
        """Encode a body of ``entries`` entries; nothing may change it meanwhile."""
        if entries <= _FEW:
            return body.encode()
        return await asyncio.get_running_loop().run_in_executor(self._executor, body.encode)
