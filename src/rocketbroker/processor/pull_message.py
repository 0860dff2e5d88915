"""PULL_MESSAGE and LITE_PULL_MESSAGE (org.apache.rocketmq.broker.processor.PullMessageProcessor)."""

from collections.abc import Awaitable
from typing import Final

import msgspec

from rocketbroker.broker.client.consumer_group_info import TAG
from rocketbroker.broker.longpolling.pull_request import PullRequest, Wanted
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ, SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.frame import JOIN_LIMIT
from rocketbroker.codec.remoting.handler import HELD, Audience, Buffer, Connection, Held, InTurn
from rocketbroker.codec.remoting.headers.message import FLAG_SUBSCRIPTION, FLAG_SUSPEND, PullMessageRequestHeader
from rocketbroker.codec.remoting.hot_responses import pull_response_head
from rocketbroker.codec.remoting.remoting_command import RemotingCommand
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.pull_accounts import PullAccounts
from rocketbroker.processor.support.pull_subscriptions import HeldFilter, PullSubscriptions
from rocketbroker.processor.support.request_checks import illegal_queue
from rocketbroker.processor.support.request_family import answers
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus
from rocketbroker.store.read.message_fetcher import MessageFetcher

_MAX_PULL_BYTES: Final = 128 * 1024 * 1024

# By the name of the status: the hash of an enum's member is computed in Python. The code depends on the offset if there
# is no queue or it is empty.
_CODES: Final = {
    GetMessageStatus.NO_MATCHED_MESSAGE.name: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.MESSAGE_WAS_REMOVING.name: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetMessageStatus.OFFSET_FOUND_NULL.name: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_ONE.name: ResponseCode.PULL_NOT_FOUND,
    GetMessageStatus.OFFSET_OVERFLOW_BADLY.name: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_TOO_SMALL.name: ResponseCode.PULL_OFFSET_MOVED,
    GetMessageStatus.OFFSET_RESET.name: ResponseCode.PULL_OFFSET_MOVED,
}

# Looking up a member in its enum takes 20 times as long.
_FOUND: Final = GetMessageStatus.FOUND
_RESET: Final = GetMessageStatus.OFFSET_RESET
_SUCCESS: Final = ResponseCode.SUCCESS
_NOT_FOUND: Final = ResponseCode.PULL_NOT_FOUND

PullCommand = RemotingCommand[PullMessageRequestHeader]


class Pull(msgspec.Struct):
    """A pull that may be served.

    Attributes:
        wanted: the tags codes or the filter of its subscription.
        may_wait: true if it may be held. One that was held, or whose messages are read on a thread, is answered.
    """

    connection: Connection
    command: PullCommand
    topic: TopicConfig
    group: SubscriptionGroupConfig
    wanted: Wanted
    may_wait: bool


class PullMessageProcessor:
    """Answers pulls, and holds those that find nothing.

    Args:
        config: permissions, long polling, and ``slaveReadEnable``.
        topic_configs: the topics.
        subscriptions: the groups and their subscriptions.
        fetcher: reads of messages.
        accounts: offsets, counters and allowances that pulls change.
        hold_service: service that holds pulls.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topic_configs: TopicConfigManager,
        subscriptions: PullSubscriptions,
        fetcher: MessageFetcher,
        accounts: PullAccounts,
        hold_service: PullRequestHoldService,
    ) -> None:
        self._config = config
        self._topic_configs = topic_configs
        self._subscriptions = subscriptions
        self._fetcher = fetcher
        self._accounts = accounts
        self._hold_service = hold_service
        # Bound once, because each held pull keeps it.
        self._run_again = self.pull_message

    @answers(RequestCode.PULL_MESSAGE, PullMessageRequestHeader, Audience.CLIENT)
    @answers(RequestCode.LITE_PULL_MESSAGE, PullMessageRequestHeader, Audience.CLIENT)
    def pull_message(
        self, connection: Connection, command: PullCommand, held: PullRequest | None = None
    ) -> list[Buffer] | InTurn | Held:
        """Return messages of a queue from an offset on, or hold the pull until there are some.

        Decide, fetch, then answer or hold, in this order. A pull that was ``held`` is not held again.

        Raises:
            BrokerResponseError: NO_PERMISSION, TOPIC_NOT_EXIST or INVALID_PARAMETER, or an error of its subscription;
                SYSTEM_BUSY if too many pulls are held. SYSTEM_ERROR if the disk cannot be read: the messages may be
                sound, so the consumer is to retry.
        """
        header, config = command.header, self._config
        if command.code == RequestCode.LITE_PULL_MESSAGE and not config.lite_pull_message_enable:
            remark = (
                f"the broker[{config.broker_ip1}] for lite pull consumer is forbidden: litePullMessageEnable is false"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        if not config.broker_permission & PERM_READ:
            remark = (
                f"the broker[{config.broker_ip1}] pulling message is forbidden: its brokerPermission is "
                f"{config.broker_permission}, which lacks read (4)"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        group = self._subscriptions.group(header.consumer_group)
        if config.reject_pull_consumer_enable:
            self._subscriptions.check_push(header.consumer_group, connection)
        topic = self._topic_configs.select(header.topic)
        if topic is None:
            remark = f"topic[{header.topic}] not exist, apply first please!"
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not topic.perm & PERM_READ:
            remark = (
                f"the topic[{header.topic}] pulling message is forbidden: its perm is {topic.perm}, which lacks read "
                "(4)"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        if not 0 <= header.queue_id < topic.read_queue_nums:
            remark = illegal_queue(header.queue_id, topic, connection)
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        wanted = None if held is None else held.carried
        if wanted is None:
            wanted = self._subscriptions.wanted(header, group)
        may_wait = held is None and bool(header.sys_flag & FLAG_SUSPEND)
        pull = Pull(connection, command, topic, group, wanted, may_wait)
        moved_to = self._accounts.commit_or_redirect(connection, header, held=held is not None)
        if moved_to is not None:
            ends = self._fetcher.queue_range(header.topic, header.queue_id)
            return self._finish(pull, GetMessageResult(_RESET, moved_to, *ends))

        tag_codes, message_filter = wanted
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
        try:
            result = self._fetcher.fetch(fetch)
        except StoreError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if isinstance(result, GetMessageResult):
            return self._finish(pull, result)
        pull.may_wait = False
        return InTurn(self._finish_later(pull, result))

    async def _finish_later(self, pull: Pull, reading: Awaitable[GetMessageResult]) -> list[Buffer]:
        """Finish a pull whose messages are read on a thread."""
        try:
            result = await reading
        except StoreError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        answer = self._finish(pull, result)
        assert answer is not HELD, "it may not wait"
        return answer

    def _finish(
        self, pull: Pull, result: GetMessageResult, code: ResponseCode | None = None, suggested: int | None = None
    ) -> list[Buffer] | Held:
        """Answer a pull with the result of its read, or hold it if it found nothing and may wait.

        Args:
            pull: the pull.
            result: the result.
            code: the code of the answer; by default that of the result's status.
            suggested: the broker to pull from next; by default the master, or with ``slaveReadEnable`` the group's.
        """
        connection, command, accounts = pull.connection, pull.command, self._accounts
        header = command.header
        if code is None:
            code = _SUCCESS if result.status is _FOUND else _CODES.get(result.status._name_)
            if code is None:
                # An empty queue that begins later: the consumer has to move there first.
                is_there = header.queue_offset == result.next_begin_offset
                code = _NOT_FOUND if is_there else ResponseCode.PULL_OFFSET_MOVED
        if pull.may_wait and code is _NOT_FOUND:
            accounts.advance(connection, header, result.next_begin_offset)
            tag_codes, message_filter = pull.wanted
            place = header.topic, header.queue_id, header.queue_offset
            request = PullRequest(
                connection,
                command,
                *place,
                tag_codes,
                None if message_filter is None else HeldFilter(self._fetcher, *place, message_filter),
                run=self._run_again,
                carried=pull.wanted if header.sys_flag & FLAG_SUBSCRIPTION else None,
            )
            # Texts may be long, and a held pull no longer needs them.
            command.remark, command.language, command.serialize_type = None, "", ""
            header.subscription = header.proxy_froward_client_id = header.lite_topic = None
            if header.expression_type != TAG:
                header.expression_type = None
            config = self._config
            timeout_ms = (
                header.suspend_timeout_millis if config.long_polling_enable else config.short_polling_time_mills
            )
            self._hold_service.suspend(request, result.max_offset, timeout_ms)
            return HELD

        if result.status is not _RESET:
            accounts.answered(connection, header, result, found=code is _SUCCESS)
        if suggested is None:
            suggested = MASTER_ID
            if self._config.slave_read_enable:
                # Slaves serve what is far back in the log, so that the master's memory serves what is new.
                last = result.next_begin_offset - 1
                far_back = result.message_count and not self._fetcher.is_in_memory(header.topic, header.queue_id, last)
                suggested = pull.group.which_broker_when_consume_slowly if far_back else pull.group.broker_id
        head = pull_response_head(
            command.opaque,
            code,
            result.status._name_,
            suggested,
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
            result.total_size,
            pull.topic.topic_sys_flag,
            pull.group.group_sys_flag,
        )
        pieces = [head, *result.buffers]
        return [b"".join(pieces)] if result.total_size <= JOIN_LIMIT else pieces
