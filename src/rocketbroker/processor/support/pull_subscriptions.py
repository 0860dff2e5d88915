"""Groups of pulls and their subscriptions: the one that a pull carries, else that of the group's heartbeats."""

from collections.abc import Callable, Iterable
from time import perf_counter
from typing import Final

from rocketbroker.broker.client.consumer_group_info import (
    LONGEST_CACHED,
    TAG,
    SubscriptionLimit,
    is_tag_type,
    tag_codes_of,
)
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager, RetryMessageFilter, filter_of
from rocketbroker.broker.longpolling.pull_request import Wanted
from rocketbroker.broker.topic.subscription_group_manager import BUILT_IN_GROUPS, SubscriptionGroupManager
from rocketbroker.codec.message.topic_validator import (
    RETRY_GROUP_TOPIC_PREFIX,
    SCHEDULE_CONSUMER_GROUP,
    is_system_group,
)
from rocketbroker.codec.remoting.bodies.client import ConsumeType, MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import INDEX_PERM_READ, SubscriptionGroupConfig
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import FLAG_CLASS_FILTER, FLAG_SUBSCRIPTION, PullMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, MQFilterError
from rocketbroker.store.read.checked_reader import FILTER_TURN_S
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus, MessageFilter
from rocketbroker.store.read.message_fetcher import MessageFetcher

_READ_FORBIDDEN: Final = 1 << INDEX_PERM_READ

_ACTIVELY: Final = ConsumeType.CONSUME_ACTIVELY
# Groups of tools, which always may pull (MixAll.isSysConsumerGroupPullMessage).
_PULLING_TOOLS: Final = {*BUILT_IN_GROUPS, "DEFAULT_CONSUMER", SCHEDULE_CONSUMER_GROUP, "__MONITOR_CONSUMER"}

_ANY_SIZE: Final = 1 << 30


class PullSubscriptions:
    """Finds groups and their subscriptions.

    Args:
        config: ``enablePropertyFilter``, and ``filterSupportRetry`` for retries.
        consumers: subscriptions of heartbeats.
        subscription_groups: the groups and their permissions.
        consumer_filters: the compiled filters of groups.
    """

    def __init__(
        self,
        config: BrokerConfig,
        consumers: ConsumerManager,
        subscription_groups: SubscriptionGroupManager,
        consumer_filters: ConsumerFilterManager,
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._subscription_groups = subscription_groups
        self._consumer_filters = consumer_filters
        self._limit = SubscriptionLimit(config)

    def group(self, name: str) -> SubscriptionGroupConfig:
        """Return the group of a pull; it is not created.

        Raises:
            BrokerResponseError: The group may neither exist nor be created, or may not consume.
        """
        group = self._subscription_groups.find_for_pull(name)
        if group is None:
            remark = f"subscription group [{name}] does not exist"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            raise _forbidden(f"subscription group no permission, {name}: consumeEnable is false")
        return group

    def check_push(self, name: str, connection: Connection) -> None:
        """Check that the group is not one that pulls on its own (``rejectPullConsumerEnable``).

        Raises:
            BrokerResponseError: SUBSCRIPTION_NOT_EXIST; no heartbeat registered the client in a group that is pushed.
        """
        info = self._consumers.group_info(name)
        is_pushed = info is not None and (info.consume_type != _ACTIVELY or connection in info.channels)
        if not is_pushed and name not in _PULLING_TOOLS and not is_system_group(name):
            remark = (
                "the consumer's group info not exist, or the pull consumer is rejected by server: "
                "rejectPullConsumerEnable is true; use a push consumer"
            )
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_NOT_EXIST, remark)

    def wanted(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> Wanted:
        """Return the tags codes or the filter of a pull.

        Raises:
            BrokerResponseError: The group has no subscription or may not use it; its filter is wrong, too long or not
                supported; or it is older than that of the client, which is not known to filter by tags.
        """
        name, topic = header.consumer_group, header.topic
        is_carried = header.sys_flag & FLAG_SUBSCRIPTION
        if is_carried:
            expression_type, expression = header.expression_type or "", header.subscription or ""
            if is_tag_type(expression_type):
                return self.carried(expression_type, expression)
            self._check_length(expression)
        else:
            info = self._consumers.group_info(name)
            if info is None:
                raise BrokerResponseError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
            if not group.consume_broadcast_enable and info.message_model == MessageModel.BROADCASTING:
                raise _forbidden(f"the consumer group[{name}] can not consume by broadcast way")
            if self._subscription_groups.forbidden(name, topic) & _READ_FORBIDDEN:
                raise _forbidden(f"the consumer group[{name}] is forbidden for topic[{topic}]")
            known = info.find_subscription_data(topic)
            if known is None:
                raise BrokerResponseError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
            if known.sub_version < header.sub_version:
                # The next heartbeat with the newer subscription may be half a minute away: a Java client skips the one
                # for the change while another is under way. Apache's broker rejects all of its pulls until then. But a
                # client that filters by tags compares each message with its tags itself, since hashes are no proof:
                # with all messages it misses none. The pull has to say that it filters by tags; a client of SQL92
                # takes whatever it gets.
                if header.expression_type == TAG and not header.sys_flag & FLAG_CLASS_FILTER:
                    return None, None
                raise BrokerResponseError(
                    ResponseCode.SUBSCRIPTION_NOT_LATEST,
                    f"the consumer's subscription not latest: no heartbeat brought version {header.sub_version} yet",
                )
            if known.is_tag:
                return known.tag_codes, None
            expression_type, expression = known.data.expression_type, known.data.sub_string

        return None, self._filter(header, expression_type, expression, is_carried=bool(is_carried))

    def carried(self, expression_type: str | None, expression: str) -> Wanted:
        """Return the tags codes or the filter that a request carries.

        Raises:
            BrokerResponseError: The filter is wrong, too long or not supported.
        """
        self._check_length(expression)
        if is_tag_type(expression_type):
            return tag_codes_of(expression), None
        return None, self._parsed(expression_type or "", expression)

    def _check_length(self, expression: str) -> None:
        if len(expression) > LONGEST_CACHED:
            self._limit.check(expression)

    def _parsed(self, expression_type: str, expression: str) -> MessageFilter:
        if not self._config.enable_property_filter:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, not_supported(expression_type))
        try:
            return filter_of(expression_type, expression)
        except MQFilterError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from error

    def _filter(
        self, header: PullMessageRequestHeader, expression_type: str, expression: str, *, is_carried: bool
    ) -> MessageFilter:
        """Return the filter that a pull carries, compiled, or that of its group's heartbeats."""
        topic = header.topic
        if not self._config.enable_property_filter:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, not_supported(expression_type))
        if is_carried:
            found = self._parsed(expression_type, expression)
        else:
            data = self._consumer_filters.get(topic, header.consumer_group)
            if data is None:
                remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
                try:
                    filter_of(expression_type, expression)
                except MQFilterError as error:
                    remark = f"{remark} {error}"
                raise BrokerResponseError(ResponseCode.FILTER_DATA_NOT_EXIST, remark)
            if data.client_version < header.sub_version:
                remark = "the consumer's consumer filter data not latest"
                raise BrokerResponseError(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
            found = data.message_filter
        if self._config.filter_support_retry and topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            # Messages of a retry topic are treated as those of their original topics.
            return RetryMessageFilter(self._consumer_filters, topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX))
        return found


class HeldFilter:
    """Applies the filter of a held pull to the messages that arrived since the last call.

    Args:
        fetcher: reads the messages.
        topic: the topic of the queue.
        queue_id: the queue.
        offset: queue offset of the first message to examine.
        message_filter: the filter.
    """

    __slots__ = ("_fetcher", "_message_filter", "_offset", "_queue_id", "_topic")

    def __init__(
        self, fetcher: MessageFetcher, topic: str, queue_id: int, offset: int, message_filter: MessageFilter
    ) -> None:
        self._fetcher = fetcher
        self._topic = topic
        self._queue_id = queue_id
        self._offset = offset
        self._message_filter = message_filter

    def __call__(self) -> bool | None:
        """Return true if a message matches, or if the pull has something else to answer.

        ``None`` if there are more messages than the event loop may examine in one turn: call again.
        """
        result = self._fetcher.fetch(
            GetMessageRequest(
                self._topic, self._queue_id, self._offset, 1, _ANY_SIZE, message_filter=self._message_filter
            )
        )
        if not isinstance(result, GetMessageResult):
            return True
        if result.status is GetMessageStatus.NO_MATCHED_MESSAGE:
            self._offset = result.next_begin_offset
            return None if self._offset < result.max_offset else False
        if not result.max_offset and not self._offset:
            return False  # nothing was ever stored in the queue
        return result.status is not GetMessageStatus.OFFSET_OVERFLOW_ONE


def filter_of_queues(
    fetcher: MessageFetcher,
    topic: str,
    queue_ids: Iterable[int],
    offset_of: Callable[[int], int],
    message_filter: MessageFilter | None,
) -> Callable[[], bool | None] | None:
    """Return a ``HeldFilter`` for several queues in one, ``None`` without a filter.

    Args:
        fetcher: reads the messages.
        topic: the topic of the queues.
        queue_ids: the queues.
        offset_of: returns the offset of the first message to examine in a queue.
        message_filter: the filter.
    """
    if message_filter is None:
        return None
    filters = [HeldFilter(fetcher, topic, each, offset_of(each), message_filter) for each in queue_ids]
    # Queues that are left of a round. Messages that arrive during one begin another round.
    left: list[HeldFilter] = []

    def has_match() -> bool | None:
        end = perf_counter() + FILTER_TURN_S
        left[:] = left or filters
        while left:
            result = left[-1]()
            if result:
                left.clear()
                return True
            if result is False:
                left.pop()
            if perf_counter() >= end:
                break
        return None if left else False

    return has_match


def not_supported(expression_type: str) -> str:
    """Return the remark for a filter on properties while these are disabled."""
    return (
        f"The broker does not support consumer to filter message by {expression_type[:64]}: "
        "enablePropertyFilter is false; set it to true to enable such filters"
    )


def _forbidden(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
