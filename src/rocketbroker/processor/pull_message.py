"""PULL_MESSAGE and LITE_PULL_MESSAGE (org.apache.rocketmq.broker.processor.PullMessageProcessor)."""

from collections.abc import Awaitable
from typing import Final

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.consumer_group_info import TAG
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.longpolling.pull_request import PullRequest, Wanted
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ, SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.frame import JOIN_LIMIT
from rocketbroker.codec.remoting.handler import HELD, Answer, Buffer, Connection, Held, InTurn
from rocketbroker.codec.remoting.headers.message import (
    FLAG_COMMIT_OFFSET,
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    PullMessageRequestHeader,
)
from rocketbroker.codec.remoting.hot_responses import pull_response_head
from rocketbroker.codec.remoting.remoting_command import RemotingCommand
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.pull_filter import HeldFilter, PullFilter
from rocketbroker.processor.support.suggested_broker import SuggestedBroker
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus
from rocketbroker.store.read.message_fetcher import MessageFetcher

_MAX_PULL_BYTES: Final = 128 * 1024 * 1024

_CODES: Final = {
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}

# Looking up a member in its enum takes 20 times as long.
_FOUND: Final = GetMessageStatus.FOUND
_SUCCESS: Final = ResponseCode.SUCCESS
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND
_NO_QUEUE: Final = frozenset({GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE})

PullCommand = RemotingCommand[PullMessageRequestHeader]


def _drop_texts(command: PullCommand) -> None:
    """Drop the texts of a held pull, which may be long and are no longer needed."""
    command.remark, command.language, command.serialize_type = None, "", ""
    header = command.header
    header.subscription = header.proxy_froward_client_id = header.lite_topic = None
    if header.expression_type != TAG:
        header.expression_type = None


class PullMessageProcessor:
    """Answers pulls, and holds those that find nothing.

    Args:
        config: permissions, long polling.
        fetcher: reads of messages.
        topic_configs: the topics.
        subscription_groups: the groups.
        pull_filter: the subscriptions.
        offsets: offsets that pulls commit.
        stats: counters of messages by group.
        hold_service: service that holds pulls.
        send_backs: bytes that consumers may send back.
        suggested: the broker to pull from next.
        consumers: groups with clients, whose offsets only they commit.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a pull depends on
        self,
        config: BrokerConfig,
        fetcher: MessageFetcher,
        topic_configs: TopicConfigManager,
        subscription_groups: SubscriptionGroupManager,
        pull_filter: PullFilter,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        hold_service: PullRequestHoldService,
        send_backs: SendBackAllowance,
        suggested: SuggestedBroker,
        consumers: ConsumerManager,
    ) -> None:
        self._config = config
        self._fetcher = fetcher
        self._topic_configs = topic_configs
        self._subscription_groups = subscription_groups
        self._pull_filter = pull_filter
        self._offsets = offsets
        self._stats = stats
        self._hold_service = hold_service
        self._send_backs = send_backs
        self._suggested = suggested
        self._consumers = consumers
        self._is_slave = config.broker_id != MASTER_ID
        # Bound once, because each held pull keeps it.
        self._run = self._resume

    def process(
        self, connection: Connection, command: PullCommand, held: PullRequest | None = None
    ) -> list[Buffer] | InTurn | Held:
        """Answer a pull, at once or after reading its messages, or hold it; one that was ``held`` is not held again."""
        header = command.header
        if command.code == RequestCode.LITE_PULL_MESSAGE and not self._config.lite_pull_message_enable:
            raise self._forbidden(
                f"the broker[{self._config.broker_ip1}] for lite pull consumer is forbidden: "
                "litePullMessageEnable is false"
            )
        group = self._readable_group(header)
        topic = self._readable_topic(header, connection)
        wanted = None if held is None else held.carried
        if wanted is None:
            wanted = self._pull_filter.wanted(header, group)
        tag_codes, message_filter = wanted
        if self._offsets.resets:
            moved = self._redirect(connection, header)
            if moved is not None:
                suggested = self._suggested.choose(header, moved, group)
                return [_head(command.opaque, ResponseCode.PULL_OFFSET_MOVED, moved, suggested, topic, group)]
        fetch = GetMessageRequest(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max(header.max_msg_nums, 1),
            min(header.max_msg_bytes or _MAX_PULL_BYTES, _MAX_PULL_BYTES),
            None if tag_codes is None else tag_codes.__contains__,
            message_filter,
            scans_ahead=True,
        )
        if held is None:
            self._commit(connection, header)
        try:
            result = self._fetcher.fetch(fetch)
        except StoreError as error:
            raise _unreadable(error) from error
        if not isinstance(result, GetMessageResult):
            return InTurn(self._answer_later(connection, command, result, topic, group))
        code = _code_of(result, header)
        if self._is_slave and code is not _SUCCESS:
            code, result = self._suggested.adjust_on_slave(header, code, result)
        if code is _NOT_FOUND and held is None and header.sys_flag & FLAG_SUSPEND:
            self._note_pulled(connection, header, result)
            self._suspend(connection, command, wanted, result.max_offset)
            return HELD
        return self._answer(connection, command, code, result, topic, group)

    async def _answer_later(
        self,
        connection: Connection,
        command: PullCommand,
        waiting: Awaitable[GetMessageResult],
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> list[Buffer]:
        try:
            result = await waiting
        except StoreError as error:
            raise _unreadable(error) from error
        code = _code_of(result, command.header)
        if self._is_slave and code is not _SUCCESS:
            code, result = self._suggested.adjust_on_slave(command.header, code, result)
        return self._answer(connection, command, code, result, topic, group)

    def _answer(
        self,
        connection: Connection,
        command: PullCommand,
        code: int,
        result: GetMessageResult,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> list[Buffer]:
        header = command.header
        exists = self._note_pulled(connection, header, result)
        stats = self._stats.group_get(header.topic, header.consumer_group) if exists else self._stats.passing_gets
        if code is _SUCCESS:
            stats.add(result.message_count, result.total_size)
            self._send_backs.give(connection, result.total_size)
        else:
            stats.misses += 1
        suggested = MASTER_ID
        if self._is_slave or self._config.slave_read_enable:
            suggested = self._suggested.choose(header, result, group)
        head = _head(command.opaque, code, result, suggested, topic, group)
        pieces = [head, *result.buffers]
        return [b"".join(pieces)] if result.total_size <= JOIN_LIMIT else pieces

    def _commit(self, connection: Connection, header: PullMessageRequestHeader) -> None:
        """Commit the offset that a pull carries. This creates its group; pulling alone does not.

        The pull of a stranger to a group with clients is served, as that of a client which has still to send its
        heartbeat after a restart of the broker, and its offset is ignored.
        """
        if header.sys_flag & FLAG_COMMIT_OFFSET and header.commit_offset >= 0:
            group, share = header.consumer_group, connection.share
            if (
                self._consumers.may_commit(group, connection)
                and self._subscription_groups.find(group, share) is not None
            ):
                self._offsets.commit(group, header.topic, header.queue_id, header.commit_offset, share)

    def _note_pulled(self, connection: Connection, header: PullMessageRequestHeader, result: GetMessageResult) -> bool:
        """Record the next offset of the pulls of a group; return true if the group exists."""
        group = header.consumer_group
        exists = self._subscription_groups.contains(group)
        if exists:
            self._offsets.commit_pull(group, header.topic, header.queue_id, result.next_begin_offset, connection.share)
        return exists

    def _redirect(self, connection: Connection, header: PullMessageRequestHeader) -> GetMessageResult | None:
        """Return the result with the offset to pull from, if the offset of the group was reset."""
        topic, queue_id = header.topic, header.queue_id
        target = self._offsets.redirect(header.consumer_group, topic, queue_id, connection)
        if target is None:
            return None
        return GetMessageResult(GetMessageStatus.OFFSET_RESET, target, *self._fetcher.queue_range(topic, queue_id))

    def _resume(self, request: PullRequest) -> Answer:
        return self.process(request.connection, request.command, request)

    def _suspend(self, connection: Connection, command: PullCommand, wanted: Wanted, max_offset: int) -> None:
        header = command.header
        timeout_ms = header.suspend_timeout_millis
        if not self._config.long_polling_enable:
            timeout_ms = self._config.short_polling_time_mills
        tag_codes, message_filter = wanted
        place = header.topic, header.queue_id, header.queue_offset
        has_match = None if message_filter is None else HeldFilter(self._fetcher, *place, message_filter)
        carried = wanted if header.sys_flag & FLAG_SUBSCRIPTION else None
        _drop_texts(command)
        request = PullRequest(connection, command, *place, tag_codes, has_match, run=self._run, carried=carried)
        self._hold_service.suspend(request, max_offset, timeout_ms)

    # -- permissions

    def _forbidden(self, remark: str) -> BrokerResponseError:
        return BrokerResponseError(ResponseCode.NO_PERMISSION, remark)

    def _readable_group(self, header: PullMessageRequestHeader) -> SubscriptionGroupConfig:
        if self._is_slave:
            self._suggested.check_readable()
        if not self._config.broker_permission & PERM_READ:
            raise self._forbidden(
                f"the broker[{self._config.broker_ip1}] pulling message is forbidden: its brokerPermission is "
                f"{self._config.broker_permission}, which lacks read (4)"
            )
        group = self._subscription_groups.find_for_pull(header.consumer_group)
        if group is None:
            remark = f"subscription group [{header.consumer_group}] does not exist"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise self._forbidden(f"subscription group no permission, {header.consumer_group}: consumeEnable is false")
        return group

    def _readable_topic(self, header: PullMessageRequestHeader, connection: Connection) -> TopicConfig:
        topic = self._topic_configs.select(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please!"
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            raise self._forbidden(
                f"the topic[{header.topic}] pulling message is forbidden: its perm is {topic.perm}, "
                "which lacks read (4)"
            )
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = (
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.remote_address}]"
            )
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        return topic


def _unreadable(error: StoreError) -> BrokerResponseError:
    """Return the error that makes the consumer retry if the disk cannot be read: the messages may be sound."""
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error))


def _head(
    opaque: int,
    code: int,
    result: GetMessageResult,
    suggested: int,
    topic: TopicConfig,
    group: SubscriptionGroupConfig,
) -> bytes:
    return pull_response_head(
        opaque,
        code,
        result.status._name_,
        suggested,
        result.next_begin_offset,
        result.min_offset,
        result.max_offset,
        result.total_size,
        topic.topic_sys_flag,
        group.group_sys_flag,
    )


def _code_of(result: GetMessageResult, header: PullMessageRequestHeader) -> ResponseCode:
    status = result.status
    if status is _FOUND:
        return _SUCCESS
    if status in _NO_QUEUE:
        # An empty queue that begins later: the consumer has to move there first.
        moved = header.queue_offset != result.next_begin_offset
        return ResponseCode.PULL_OFFSET_MOVED if moved else _NOT_FOUND
    return _CODES[status]
