"""Requests for the tables of the other brokers of a name (BrokerOuterAPI.getAllTopicConfig and others).

A slave asks its master. A returning master asks its slaves.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Final, Generic, NamedTuple, TypeVar

from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.codec.remoting.bodies.offset import (
    ConsumerOffsetSerializeWrapper,
    DelayOffsetSerializeWrapper,
    TimerMetricsSerializeWrapper,
)
from rocketbroker.codec.remoting.bodies.pop import MessageRequestModeSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import KVTable, RemotingSerializable
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rocketbroker.codec.remoting.headers.admin import (
    ExchangeHAInfoRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetAllTopicConfigRequestHeader,
    GetAllTopicConfigResponseHeader,
)
from rocketbroker.codec.remoting.headers.auth import ListUsersRequestHeader, ListUsersResponseHeader
from rocketbroker.codec.remoting.headers.message import UpdateConsumerOffsetRequestHeader, ViewMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, from_ext_fields, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint, decode_timer_checkpoint
from rocketbroker.common.errors import CodecError
from rocketbroker.transport.remoting_client import RemotingClient

#: Entries in one page of a table.
PAGE: Final = 2_000
#: Most pages of one table: 1,000,000 entries.
MOST_PAGES: Final = 500
_TIMEOUT_S: Final = 10.0
# A broker whose clock is further ahead than this has no true progress of its timer.
_CLOCKS_APART_MS: Final = 2 * 3_600_000
# Shorter bodies are decoded on the event loop.
_INLINE_BYTES: Final = 65_536

T = TypeVar("T", bound=RemotingSerializable)
P = TypeVar("P", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)


class LogState(NamedTuple):
    """Process that answered, by its start time as text, and the CommitLog offset after its last message."""

    started: str
    end: int


class _PagedTable(NamedTuple, Generic[P]):
    """A table that masters answer in pages.

    ``maps`` returns the entries of a page, and what else it has for them; ``total`` returns the number of all entries.
    """

    code: RequestCode
    kind: type[P]
    request_header: Callable[[int, str, int], CommandCustomHeader]
    maps: Callable[[P], Sequence[dict[str, Any]]]
    total: Callable[[Command], int | None]


_TOPICS: Final = _PagedTable(
    RequestCode.GET_ALL_TOPIC_CONFIG,
    TopicConfigSerializeWrapper,
    GetAllTopicConfigRequestHeader,
    lambda page: [page.topic_config_table],
    lambda answer: from_ext_fields(answer.header, GetAllTopicConfigResponseHeader).total_topic_num,
)
_GROUPS: Final = _PagedTable(
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    SubscriptionGroupWrapper,
    GetAllSubscriptionGroupRequestHeader,
    lambda page: [page.subscription_group_table, page.forbidden_table],
    lambda answer: from_ext_fields(answer.header, GetAllSubscriptionGroupResponseHeader).total_group_num,
)


class MasterClient:
    """Fetches tables from a broker; each method raises RemotingError or CodecError if it gets no whole table.

    Args:
        client: sends the requests; its owner stops it.
        executor: decodes long answers.
        address: returns the broker's address.
    """

    def __init__(self, client: RemotingClient, executor: Executor, address: Callable[[], str]) -> None:
        self._client = client
        self._executor = executor
        self._address = address

    async def topics(self) -> TopicConfigSerializeWrapper:
        """Return all topics, by GET_ALL_TOPIC_CONFIG."""
        return await self._all_pages(_TOPICS)

    async def groups(self) -> SubscriptionGroupWrapper:
        """Return all groups, by GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        return await self._all_pages(_GROUPS)

    async def consumer_offsets(self) -> ConsumerOffsetSerializeWrapper:
        """Return the consumer offsets, by GET_ALL_CONSUMER_OFFSET."""
        answer = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        # Offsets that a table lacks were deleted; one without the field is another answer.
        if b'"offsetTable"' not in (answer.body or b""):
            raise CodecError("it has no offsetTable")
        return await self._decode(answer, ConsumerOffsetSerializeWrapper)

    async def delay_offsets(self) -> DelayOffsetSerializeWrapper:
        """Return the progress of the delay levels, by GET_ALL_DELAY_OFFSET."""
        return await self._decode(await self._ask(RequestCode.GET_ALL_DELAY_OFFSET), DelayOffsetSerializeWrapper)

    async def message_request_modes(self) -> MessageRequestModeSerializeWrapper:
        """Return the message request modes, by GET_ALL_MESSAGE_REQUEST_MODE."""
        answer = await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        return await self._decode(answer, MessageRequestModeSerializeWrapper)

    async def timer_checkpoint(self, now_ms: int) -> TimerCheckpoint:
        """Return the progress of the timer, by GET_TIMER_CHECK_POINT."""
        answer = decode_timer_checkpoint((await self._ask(RequestCode.GET_TIMER_CHECK_POINT)).body)
        latest = now_ms + _CLOCKS_APART_MS
        if not 0 <= answer.last_read_time_ms <= latest or answer.last_timer_queue_offset < 0:
            raise CodecError(f"its times are wrong, or the clocks are apart: {answer}")
        return answer

    async def timer_metrics(self) -> TimerMetricsSerializeWrapper:
        """Return the waiting timer messages by topic, by GET_TIMER_METRICS."""
        return await self._decode(await self._ask(RequestCode.GET_TIMER_METRICS), TimerMetricsSerializeWrapper)

    async def users_and_policies(self, key_id: str, nonce: str) -> tuple[bytes, str]:
        """Return a copy of users and policies and its MAC, by AUTH_LIST_USER.

        Args:
            key_id: id of the key that seals their secrets.
            nonce: random text that the MAC covers.
        """
        header = ListUsersRequestHeader(copy_key_id=key_id, copy_nonce=nonce)
        answer = await self._ask(RequestCode.AUTH_LIST_USER, header)
        tag = from_ext_fields(answer.header, ListUsersResponseHeader).copy_tag
        if tag is None:
            raise CodecError("it answers a list without secrets: only a broker of this kind sends copies")
        return bytes(answer.body or b""), tag

    async def log_state(self) -> LogState:
        """Return the state of the log, by GET_BROKER_RUNTIME_INFO: brokers of all versions answer it."""
        table = (await self._decode(await self._ask(RequestCode.GET_BROKER_RUNTIME_INFO), KVTable)).table
        started, end = table.get("bootTimestamp", ""), table.get("commitLogMaxOffset", "")
        if not started or not end.isdecimal():
            raise CodecError(f"its start time is {started[:40]!r}, the end of its log {end[:40]!r}")
        return LogState(started, int(end))

    async def record(self, offset: int) -> bytes:
        """Return the record at a CommitLog offset, by VIEW_MESSAGE_BY_ID; empty if no message is there."""
        command = request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset))
        answer = await self._client.invoke(self._address(), command, _TIMEOUT_S)
        return bytes(answer.body or b"") if answer.code == ResponseCode.SUCCESS else b""

    async def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit a consumer offset, one-way: an answered commit of a stranger would be an administrator's reset."""
        header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
        await self._client.invoke_oneway(self._address(), request(RequestCode.UPDATE_CONSUMER_OFFSET, header))

    async def _all_pages(self, table: _PagedTable[P]) -> P:
        """Return all entries of a table; begin again at a page with another version."""
        whole, total = table.kind(), None
        for _ in range(MOST_PAGES):
            seen = len(table.maps(whole)[0])
            version = whole.data_version.encode().decode() if seen else ""
            answer = await self._ask(table.code, table.request_header(seen, version, PAGE))
            page = await self._decode(answer, table.kind)
            total = table.total(answer) or total
            if not seen or page.data_version != whole.data_version:
                whole = page
            else:
                _add(table.maps(whole), table.maps(page))
            if _is_whole(len(table.maps(whole)[0]), len(table.maps(page)[0]), total):
                return whole
        raise CodecError(f"it has more than {PAGE * MOST_PAGES:,} entries, or changes them all the time")

    async def announce(self, master: Master) -> bool:
        """Send the addresses of a master to its slave, by EXCHANGE_BROKER_HA_INFO.

        Return false if the slave never acts as master: brokers before 5.0 do not know the code.
        """
        header = ExchangeHAInfoRequestHeader(master.ha_address, 0, master.address)
        command = request(RequestCode.EXCHANGE_BROKER_HA_INFO, header)
        answer = await self._client.invoke(self._address(), command, _TIMEOUT_S)
        if answer.code not in {ResponseCode.SUCCESS, ResponseCode.REQUEST_CODE_NOT_SUPPORTED}:
            raise CodecError(f"EXCHANGE_BROKER_HA_INFO is answered by {answer.code} {(answer.remark or '')[:400]}")
        return answer.code == ResponseCode.SUCCESS

    async def _ask(self, code: RequestCode, header: CommandCustomHeader | None = None) -> Command:
        answer = await self._client.invoke(self._address(), request(code, header), _TIMEOUT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise CodecError(f"{code.name} is answered by {answer.code} {(answer.remark or '')[:200]}")
        return answer

    async def _decode(self, answer: Command, kind: type[T]) -> T:
        if not answer.body:
            raise CodecError(f"{kind.__name__}: the answer is empty")
        if len(answer.body) <= _INLINE_BYTES:
            return kind.decode(answer.body)
        return await asyncio.get_running_loop().run_in_executor(self._executor, kind.decode, bytes(answer.body))


def _add(maps: Sequence[dict[str, Any]], page: Sequence[dict[str, Any]]) -> None:
    before = len(maps[0])
    for whole, added in zip(maps, page, strict=True):
        whole.update(added)
    if len(maps[0]) != before + len(page[0]):
        raise CodecError("two pages of a table have the same entry")


def _is_whole(count: int, added: int, total: int | None) -> bool:
    """Return true if all pages are here; masters before 5.4 name no total and answer the whole table."""
    if not count:
        raise CodecError("the table is empty, without the entries that each broker has")
    if total is None or count >= total:
        return True
    if not added:
        raise CodecError(f"the table ends after {count:,} of {total:,} entries")
    return False
