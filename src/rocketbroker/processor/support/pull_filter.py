"""Subscriptions of pulls: the one that a pull carries, else that of its group's heartbeats (PullMessageProcessor)."""

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
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import INDEX_PERM_READ, SubscriptionGroupConfig
from rocketbroker.codec.remoting.headers.message import FLAG_CLASS_FILTER, FLAG_SUBSCRIPTION, PullMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, MQFilterError
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult, GetMessageStatus, MessageFilter
from rocketbroker.store.read.message_fetcher import MessageFetcher

_READ_FORBIDDEN: Final = 1 << INDEX_PERM_READ

_ANY_SIZE: Final = 1 << 30


class PullFilter:
    """Finds the subscriptions of pulls.

    Args:
        config: ``enablePropertyFilter``, and ``filterSupportRetry`` for retries.
        consumers: subscriptions of heartbeats.
        subscription_groups: permissions of groups.
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

    def wanted(self, header: PullMessageRequestHeader, group: SubscriptionGroupConfig) -> Wanted:
        """Return the tags codes or the filter of a pull.

        Raises:
            BrokerResponseError: The group has no subscription or may not use it; its filter is wrong, too long or not
                supported; or it is older than that of the client, which is not known to filter by tags.
        """
        if header.sys_flag & FLAG_SUBSCRIPTION:
            if header.subscription is not None and len(header.subscription) > LONGEST_CACHED:
                self._limit.check(header.subscription)
            if is_tag_type(header.expression_type):
                return tag_codes_of(header.subscription or ""), None
            return None, self._by_expression(header)
        info = self._consumers.group_info(header.consumer_group)
        if info is None:
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist")
        if not group.consume_broadcast_enable and info.message_model == MessageModel.BROADCASTING:
            raise _forbidden(f"the consumer group[{header.consumer_group}] can not consume by broadcast way")
        if self._subscription_groups.forbidden(header.consumer_group, header.topic) & _READ_FORBIDDEN:
            raise _forbidden(f"the consumer group[{header.consumer_group}] is forbidden for topic[{header.topic}]")
        subscription = info.find_subscription_data(header.topic)
        if subscription is None:
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's subscription not exist")
        if subscription.sub_version < header.sub_version:
            return _not_known_yet(header)
        if subscription.is_tag:
            return subscription.tag_codes, None
        return None, self._registered(header, subscription.data.expression_type, subscription.data.sub_string)

    def _by_expression(self, header: PullMessageRequestHeader) -> MessageFilter:
        """Compile the filter that a pull carries."""
        expression_type = header.expression_type or ""
        self._check_enabled(expression_type)
        try:
            found = filter_of(expression_type, header.subscription or "")
        except MQFilterError as error:
            remark = f"parse the consumer's subscription failed: {error}"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark) from error
        return self._with_retries(header, found)

    def _registered(self, header: PullMessageRequestHeader, expression_type: str, expression: str) -> MessageFilter:
        """Return the filter from the group's heartbeats."""
        self._check_enabled(expression_type)
        data = self._consumer_filters.get(header.topic, header.consumer_group)
        if data is None:
            remark = "The broker's consumer filter data is not exist!Your expression may be wrong!"
            raise BrokerResponseError(
                ResponseCode.FILTER_DATA_NOT_EXIST, f"{remark} {_what_is_wrong(expression_type, expression)}".rstrip()
            )
        if data.client_version < header.sub_version:
            remark = "the consumer's consumer filter data not latest"
            raise BrokerResponseError(ResponseCode.FILTER_DATA_NOT_LATEST, remark)
        return self._with_retries(header, data.message_filter)

    def _with_retries(self, header: PullMessageRequestHeader, message_filter: MessageFilter) -> MessageFilter:
        """Return a filter that treats messages of a retry topic as those of their original topic."""
        if self._config.filter_support_retry and header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return RetryMessageFilter(self._consumer_filters, header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX))
        return message_filter

    def _check_enabled(self, expression_type: str) -> None:
        if not self._config.enable_property_filter:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, not_supported(expression_type))


class HeldFilter:
    """Applies the filter of a held pull to the messages that arrived since the last call.

    Args:
        fetcher: reads the messages.
        topic: the topic of the queue.
        queue_id: the queue.
        offset: queue offset of the first message to examine.
        message_filter: the filter.
    """

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
        return result.status is not GetMessageStatus.OFFSET_OVERFLOW_ONE


def _not_known_yet(header: PullMessageRequestHeader) -> Wanted:
    """Select everything for a client that filters by tags, and has a newer subscription than its heartbeats brought.

    The next heartbeat may be half a minute away: a Java client skips the one for the change while another is under way.
    Apache's broker rejects all of its pulls until then. But a client that filters by tags compares each message with
    its tags itself, since hashes are no proof: with all messages it misses none. The pull has to say that it filters by
    tags; a client of SQL92 takes whatever it gets.
    """
    if header.expression_type == TAG and not header.sys_flag & FLAG_CLASS_FILTER:
        return None, None
    raise BrokerResponseError(
        ResponseCode.SUBSCRIPTION_NOT_LATEST,
        f"the consumer's subscription not latest: no heartbeat brought version {header.sub_version} yet",
    )


def not_supported(expression_type: str) -> str:
    """Return the remark for a filter on properties while these are disabled."""
    return (
        f"The broker does not support consumer to filter message by {expression_type[:64]}: "
        "enablePropertyFilter is false; set it to true to enable such filters"
    )


def _what_is_wrong(expression_type: str, expression: str) -> str:
    try:
        filter_of(expression_type, expression)
    except MQFilterError as error:
        return str(error)
    return ""


def _forbidden(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
