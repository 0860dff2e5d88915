"""PULL_MESSAGE and LITE_PULL_MESSAGE (org.apache.rocketmq.broker.processor.PullMessageProcessor)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from rocketbroker.broker.client.send_back_allowance import SendBackAllowance
from rocketbroker.broker.client.subscription import TAG
from rocketbroker.broker.longpolling.pull_request import PullRequest, Wanted
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.stats.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.stats.stats_item import StatsItem
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.subscription_group import SubscriptionGroupConfig
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import HELD, Answer, Buffer, Connection, Held, InTurn
from rocketbroker.codec.remoting.headers.pull_message import PullMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import pull_response_head
from rocketbroker.codec.remoting.perm_name import PERM_READ
from rocketbroker.codec.remoting.pull_sys_flag import FLAG_COMMIT_OFFSET, FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rocketbroker.codec.remoting.remoting_command import RemotingCommand
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.pull_filter import HeldFilter, PullFilter
from rocketbroker.store.message_store import MessageStore
from rocketbroker.store.read.get_message import GetMessageResult, GetMessageStatus, UncheckedMessages

_MAX_PULL_BYTES: Final = 128 * 1024 * 1024

_CODES: Final = {
    GetMessageStatus.FOUND: ResponseCode.SUCCESS,
    GetMessageStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET: ResponseCode.PULL_OFFSET_MOVED,
}

PullCommand = RemotingCommand[PullMessageRequestHeader]


@contextmanager
def _disk_errors() -> Iterator[None]:
    """Has the consumer try again when the disk cannot be read: nobody knows whether the messages are sound."""
    try:
        yield
    except StoreError as error:
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error


def _drop_texts(command: PullCommand) -> None:
    """Drop the texts of a held pull, which may be long and are not needed any more."""
    command.remark, command.language, command.serialize_type = None, "", ""
    header = command.header
    header.subscription = header.proxy_froward_client_id = header.lite_topic = None
    if header.expression_type != TAG:
        header.expression_type = None


class PullMessageProcessor:
    """Answers pulls with slices of the log, and has those wait that find nothing.

    Args:
        config: permissions, long polling.
        store: the messages.
        topic_configs: the topics.
        subscription_groups: the groups.
        pull_filter: finds what pulls want.
        offsets: takes the offsets that pulls commit.
        stats: counts what is got.
        hold_service: holds pulls that find nothing.
        send_backs: counts what consumers may send back.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a pull depends on
        self,
        config: BrokerConfig,
        store: MessageStore,
        topic_configs: TopicConfigManager,
        subscription_groups: SubscriptionGroupManager,
        pull_filter: PullFilter,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        hold_service: PullRequestHoldService,
        send_backs: SendBackAllowance,
    ) -> None:
        self._config = config
        self._store = store
        self._topic_configs = topic_configs
        self._subscription_groups = subscription_groups
        self._pull_filter = pull_filter
        self._offsets = offsets
        self._stats = stats
        self._hold_service = hold_service
        self._send_backs = send_backs
        # Bound once: each held pull has it.
        self._run = self._resume

    def process(
        self, connection: Connection, command: PullCommand, held: PullRequest | None = None
    ) -> list[Buffer] | InTurn | Held:
        """Answer a pull, at once or when its messages are read, or hold it; one that was ``held`` is answered."""
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
                return [self._head(command.opaque, ResponseCode.PULL_OFFSET_MOVED, moved, 0, topic, group)]
        result = self._store.get_message(
            header.topic,
            header.queue_id,
            header.queue_offset,
            max(header.max_msg_nums, 1),
            min(header.max_msg_bytes or _MAX_PULL_BYTES, _MAX_PULL_BYTES),
            None if tag_codes is None else tag_codes.__contains__,
            message_filter,
        )
        exists = self._keep_offsets(header, result.next_begin_offset, may_commit=held is None)
        code = self._code_of(result, header)
        if code == ResponseCode.PULL_NOT_FOUND and held is None and header.sys_flag & FLAG_SUSPEND:
            self._suspend(connection, command, wanted, result.max_offset)
            return HELD
        stats = self._stats.group_get(header.topic, header.consumer_group) if exists else self._stats.passing_gets
        if code != ResponseCode.SUCCESS:
            stats.misses += 1
            return [self._head(command.opaque, code, result, 0, topic, group)]
        if result.unchecked is not None:
            return self._read_checked(connection, command.opaque, result, result.unchecked, topic, group, stats)
        stats.add(result.message_count, result.total_size)
        self._send_backs.give(connection, result.total_size)
        return self._found(command.opaque, result, self._store.slices(result.ranges), topic, group)

    def _keep_offsets(self, header: PullMessageRequestHeader, pulled: int, *, may_commit: bool) -> bool:
        """Keep the offsets of a pull. A group that commits is created; of one that only pulls nothing is kept.

        Returns:
            Whether the group exists.
        """
        group = header.consumer_group
        commits = may_commit and header.sys_flag & FLAG_COMMIT_OFFSET and header.commit_offset >= 0
        if commits:
            self._subscription_groups.find(group)
        if not self._subscription_groups.contains(group):
            return False
        self._offsets.commit_pull(group, header.topic, header.queue_id, pulled)
        if commits:
            self._offsets.commit(group, header.topic, header.queue_id, header.commit_offset)
        return True

    def _redirect(self, connection: Connection, header: PullMessageRequestHeader) -> GetMessageResult | None:
        """Where the pull has to go on, since the offset of its group was reset."""
        topic, queue_id = header.topic, header.queue_id
        target = self._offsets.redirect(header.consumer_group, topic, queue_id, connection)
        if target is None:
            return None
        first, end = self._store.min_offset_in_queue(topic, queue_id), self._store.max_offset_in_queue(topic, queue_id)
        return GetMessageResult(GetMessageStatus.OFFSET_RESET, target, first, end)

    def _found(
        self,
        opaque: int,
        result: GetMessageResult,
        bodies: Sequence[Buffer],
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> list[Buffer]:
        length = result.total_size
        if len(bodies) != len(result.ranges):
            # A file of the log was deleted since the queue was looked at.
            length = sum(map(len, bodies))
        return [self._head(opaque, ResponseCode.SUCCESS, result, length, topic, group), *bodies]

    def _read_checked(
        self,
        connection: Connection,
        opaque: int,
        result: GetMessageResult,
        messages: UncheckedMessages,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
        stats: StatsItem,
    ) -> list[Buffer] | InTurn:
        """Answer with messages that may come from the disk, at once where they are in the page cache."""

        def sound(pieces: Sequence[Buffer]) -> list[Buffer]:
            if not result.message_count:
                # All are damaged: the consumer goes on behind them.
                stats.misses += 1
                return [self._head(opaque, ResponseCode.PULL_RETRY_IMMEDIATELY, result, 0, topic, group)]
            stats.add(result.message_count, result.total_size)
            self._send_backs.give(connection, result.total_size)
            return [self._head(opaque, ResponseCode.SUCCESS, result, result.total_size, topic, group), *pieces]

        async def read() -> list[Buffer]:
            with _disk_errors():
                return sound(await self._store.checked_reader.read_on_thread(result, messages))

        with _disk_errors():
            cached = self._store.checked_reader.read_cached(result, messages)
        return InTurn(read()) if cached is None else sound(cached)

    @staticmethod
    def _head(
        opaque: int,
        code: int,
        result: GetMessageResult,
        length: int,
        topic: TopicConfig,
        group: SubscriptionGroupConfig,
    ) -> bytes:
        return pull_response_head(
            opaque,
            code,
            result.status.name,
            group.broker_id,
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            length,
            topic.topic_sys_flag,
            group.group_sys_flag,
        )

    @staticmethod
    def _code_of(result: GetMessageResult, header: PullMessageRequestHeader) -> ResponseCode:
        status = result.status
        if status in {GetMessageStatus.NO_MATCHED_LOGIC_QUEUE, GetMessageStatus.NO_MESSAGE_IN_QUEUE}:
            # An empty queue that begins later: the consumer has to move there first.
            moved = header.queue_offset != result.next_begin_offset
            return ResponseCode.PULL_OFFSET_MOVED if moved else ResponseCode.PULL_NOT_FOUND
        return _CODES[status]

    def _resume(self, request: PullRequest) -> Answer:
        return self.process(request.connection, request.command, request)

    def _suspend(self, connection: Connection, command: PullCommand, wanted: Wanted, max_offset: int) -> None:
        header = command.header
        timeout_ms = header.suspend_timeout_millis
        if not self._config.long_polling_enable:
            timeout_ms = self._config.short_polling_time_mills
        tag_codes, message_filter = wanted
        place = header.topic, header.queue_id, header.queue_offset
        has_match = None if message_filter is None else HeldFilter(self._store, *place, message_filter)
        carried = wanted if header.sys_flag & FLAG_SUBSCRIPTION else None
        _drop_texts(command)
        request = PullRequest(connection, command, *place, tag_codes, has_match, run=self._run, carried=carried)
        self._hold_service.suspend(request, max_offset, timeout_ms)

    # -- what may be read

    def _forbidden(self, remark: str) -> BrokerResponseError:
        return BrokerResponseError(ResponseCode.NO_PERMISSION, remark)

    def _readable_group(self, header: PullMessageRequestHeader) -> SubscriptionGroupConfig:
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
