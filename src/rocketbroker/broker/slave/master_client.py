"""Requests of a slave for the tables of its master (BrokerOuterAPI.getAllTopicConfig and others)."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final, TypeVar

from rocketbroker.codec.remoting.bodies.data_version import DataVersion
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper, DelayOffsetSerializeWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.bodies.slave_tables import (
    MessageRequestModeSerializeWrapper,
    TimerMetricsSerializeWrapper,
)
from rocketbroker.codec.remoting.bodies.subscription_group import SubscriptionGroupWrapper
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfigSerializeWrapper
from rocketbroker.codec.remoting.custom_header import CommandCustomHeader, from_ext_fields
from rocketbroker.codec.remoting.headers.offset import UpdateConsumerOffsetRequestHeader
from rocketbroker.codec.remoting.headers.subscription_group import (
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
)
from rocketbroker.codec.remoting.headers.topic import GetAllTopicConfigRequestHeader, GetAllTopicConfigResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, request
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
# Shorter bodies are decoded on the event loop.
_INLINE_BYTES: Final = 65_536

T = TypeVar("T", bound=RemotingSerializable)
P = TypeVar("P", TopicConfigSerializeWrapper, SubscriptionGroupWrapper)


class MasterClient:
    """Fetches tables from a master; each method raises RemotingError or CodecError if it gets no whole table.

    Args:
        client: sends the requests; its owner stops it.
        executor: decodes long answers.
        address: returns the master's address.
    """

    def __init__(self, client: RemotingClient, executor: Executor, address: Callable[[], str]) -> None:
        self._client = client
        self._executor = executor
        self._address = address

    async def topics(self) -> TopicConfigSerializeWrapper:
        """Return all topics, by GET_ALL_TOPIC_CONFIG."""
        whole, total = TopicConfigSerializeWrapper(), None
        for _ in range(MOST_PAGES):
            table = whole.topic_config_table
            header = GetAllTopicConfigRequestHeader(len(table), _seen(whole.data_version, table), PAGE)
            answer = await self._ask(RequestCode.GET_ALL_TOPIC_CONFIG, header)
            page = await self._decode(answer, TopicConfigSerializeWrapper)
            total = from_ext_fields(answer.header, GetAllTopicConfigResponseHeader).total_topic_num or total
            if not table or page.data_version != whole.data_version:
                whole = page
            else:
                _add(table, page.topic_config_table)
            if _is_whole(len(whole.topic_config_table), len(page.topic_config_table), total):
                return whole
        raise CodecError(f"it has more than {PAGE * MOST_PAGES:,} topics, or changes them all the time")

    async def groups(self) -> SubscriptionGroupWrapper:
        """Return all groups, by GET_ALL_SUBSCRIPTIONGROUP_CONFIG."""
        whole, total = SubscriptionGroupWrapper(), None
        for _ in range(MOST_PAGES):
            table = whole.subscription_group_table
            header = GetAllSubscriptionGroupRequestHeader(len(table), _seen(whole.data_version, table), PAGE)
            answer = await self._ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, header)
            page = await self._decode(answer, SubscriptionGroupWrapper)
            total = from_ext_fields(answer.header, GetAllSubscriptionGroupResponseHeader).total_group_num or total
            if not table or page.data_version != whole.data_version:
                whole = page
            else:
                _add(table, page.subscription_group_table)
                whole.forbidden_table.update(page.forbidden_table)
            if _is_whole(len(whole.subscription_group_table), len(page.subscription_group_table), total):
                return whole
        raise CodecError(f"it has more than {PAGE * MOST_PAGES:,} groups, or changes them all the time")

    async def consumer_offsets(self) -> ConsumerOffsetSerializeWrapper:
        """Return the consumer offsets, by GET_ALL_CONSUMER_OFFSET."""
        answer = await self._ask(RequestCode.GET_ALL_CONSUMER_OFFSET)
        return await self._decode(answer, ConsumerOffsetSerializeWrapper)

    async def delay_offsets(self) -> DelayOffsetSerializeWrapper:
        """Return the progress of the delay levels, by GET_ALL_DELAY_OFFSET."""
        return await self._decode(await self._ask(RequestCode.GET_ALL_DELAY_OFFSET), DelayOffsetSerializeWrapper)

    async def message_request_modes(self) -> MessageRequestModeSerializeWrapper:
        """Return the message request modes, by GET_ALL_MESSAGE_REQUEST_MODE."""
        answer = await self._ask(RequestCode.GET_ALL_MESSAGE_REQUEST_MODE)
        return await self._decode(answer, MessageRequestModeSerializeWrapper)

    async def timer_checkpoint(self) -> TimerCheckpoint:
        """Return the progress of the timer, by GET_TIMER_CHECK_POINT."""
        return decode_timer_checkpoint((await self._ask(RequestCode.GET_TIMER_CHECK_POINT)).body)

    async def timer_metrics(self) -> TimerMetricsSerializeWrapper:
        """Return the waiting timer messages by topic, by GET_TIMER_METRICS."""
        return await self._decode(await self._ask(RequestCode.GET_TIMER_METRICS), TimerMetricsSerializeWrapper)

    async def commit(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Commit a consumer offset, one-way: an answered commit of a stranger would be an administrator's reset."""
        header = UpdateConsumerOffsetRequestHeader(group, topic, queue_id, offset)
        await self._client.invoke_oneway(self._address(), request(RequestCode.UPDATE_CONSUMER_OFFSET, header))

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


def _seen(version: DataVersion, table: object) -> str:
    return version.encode().decode() if table else ""


def _add(table: dict[str, T], page: dict[str, T]) -> None:
    before = len(table)
    table.update(page)
    if len(table) != before + len(page):
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
