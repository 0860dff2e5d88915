"""Topics that messages are sent to: found, created, or dead letters after the last retry."""

import random
from typing import Final, cast

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager, StatsItem
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.message_meters import MessageMeters, SendMeter
from rocketbroker.broker.schedule_message_service import DELAY
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TIMER_TOPIC, TopicConfigManager, unserved_attribute
from rocketbroker.codec.message.message_const import MULTI_TAGS_FLAG
from rocketbroker.codec.message.message_properties import replace_property
from rocketbroker.codec.message.pop_info import REVIVE_TOPIC_PREFIX
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    RMQ_SYS_TRANS_HALF_TOPIC,
    is_not_allowed_send_topic,
    validate_topic,
)
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ_WRITE, PERM_WRITE, TopicConfig, TopicFilterType
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.table_change import topic_waits
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, Wait

# The same fields; only their names on the wire differ.
HEADER_V2: Final = cast("type[SendMessageRequestHeader]", SendMessageRequestHeaderV2)
_UNIT_FLAG = 1
_NOT_WRITTEN = "which this broker does not support; send to a topic without it"
_UNIT_SUB_FLAG = 2


class TopicTarget:
    """A topic that may be sent to.

    ``waits`` is true if the answer to a send may have to wait for disk or slaves, or for the topic itself if it is new.
    ``meter`` counts sends for metrics, which leave retry topics out; ``None`` if there are none.
    """

    __slots__ = ("config", "is_batch_cq", "is_retry", "meter", "order", "queue_nums", "stats", "sys_flag", "waits")

    def __init__(self, config: TopicConfig, stats: StatsItem, meters: MessageMeters | None = None) -> None:
        self.config = config
        self.stats = stats
        self.queue_nums = max(config.write_queue_nums, config.read_queue_nums)
        self.sys_flag = MULTI_TAGS_FLAG if config.topic_filter_type == TopicFilterType.MULTI_TAG else 0
        self.order = config.order
        self.is_batch_cq = config.is_batch_cq
        self.is_retry = config.topic_name.startswith(RETRY_GROUP_TOPIC_PREFIX)
        self.meter = None if meters is None or self.is_retry else SendMeter(meters, config.topic_name)
        self.waits = True


def other_queue(header: SendMessageRequestHeader, target: TopicTarget) -> int:
    """Return a random queue of the topic for a negative number.

    Raises:
        BrokerResponseError: INVALID_PARAMETER; the number is too large.
    """
    if header.queue_id < 0:
        return random.randrange(max(target.config.write_queue_nums, 1))
    remark = (
        f"request queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
        f"has writeQueueNums:[{target.config.write_queue_nums}] readQueueNums:[{target.config.read_queue_nums}]"
    )
    raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)


def check_accepting(config: BrokerConfig, clock: Clock) -> None:
    """Check that the broker takes sends yet.

    Raises:
        BrokerResponseError: SYSTEM_ERROR before ``startAcceptSendRequestTimeStamp``; clients try another broker.
    """
    begin = config.start_accept_send_request_time_stamp
    if clock.time_ms() < begin:
        remark = f"broker unable to service, until {begin} (startAcceptSendRequestTimeStamp, ms since 1970)"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)


class TopicTargets:
    """Finds topics for sends, and creates them as RocketMQ does (AbstractSendMessageProcessor.msgCheck).

    Args:
        config: permissions of the broker, and the time from which it takes sends.
        topic_config_manager: the topics.
        stats: counters of each topic.
        clock: clock of ``startAcceptSendRequestTimeStamp``.
    """

    def __init__(
        self, config: BrokerConfig, topic_config_manager: TopicConfigManager, stats: BrokerStatsManager, clock: Clock
    ) -> None:
        self._clock = clock
        self._config = config
        self._manager = topic_config_manager
        self._topics = topic_config_manager.topics
        self._stats = stats
        self._targets: dict[str, TopicTarget] = {}
        # Half messages count here, because their own topic gets a message only at the commit.
        self.half_stats = stats.topic_put(RMQ_SYS_TRANS_HALF_TOPIC)

    def find(self, header: SendMessageRequestHeader, connection: Connection) -> TopicTarget:
        """Find the topic of a send.

        Raises:
            BrokerResponseError: The name is not allowed, the topic does not exist and may not be created, or it may not
                be written to.
        """
        target = self._targets.get(header.topic)
        # A changed topic is another object.
        if target is None or target.config is not self._topics.get(header.topic):
            config = self._checked(header, connection)
            if len(self._targets) > len(self._topics):
                self._forget_deleted()
            stats = self._stats.topic_put(header.topic)
            target = self._targets[header.topic] = TopicTarget(config, stats, self._stats.meters)
        if target.order and not self._config.broker_permission & PERM_WRITE:
            # Only ordered topics: the routes of others lead their producers elsewhere.
            remark = (
                f"the broker[{self._config.broker_ip1}] sending message is forbidden: its brokerPermission is "
                f"{self._config.broker_permission}, which lacks write (2), and topic[{header.topic}] is ordered"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        return target

    def waits(self, *queues: tuple[str, int]) -> list[Wait]:
        """Return waits for the topics of ``queues`` (topic and number) that are not on disk yet, or not registered."""
        return topic_waits(self._manager, *queues)

    def _forget_deleted(self) -> None:
        for topic in self._targets.keys() - self._topics.keys():
            del self._targets[topic]

    def _checked(self, header: SendMessageRequestHeader, connection: Connection) -> TopicConfig:
        # Only before a topic is found for the first time: the setting is fixed, and its time passes once.
        check_accepting(self._config, self._clock)
        topic = header.topic
        result = validate_topic(topic)
        if not result.valid:
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, result.remark)
        # Apache RocketMQ accepts messages for its timer's topic, which then name their own target, and for its revive
        # topics, where a forged record delivers or acknowledges messages of any group.
        if is_not_allowed_send_topic(topic) or topic == TIMER_TOPIC or topic.startswith(REVIVE_TOPIC_PREFIX):
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, f"Sending message to topic[{topic}] is forbidden.")
        config = self._topics.get(topic) or self._create(header, connection)
        if not config.perm & PERM_WRITE:
            remark = f"sending message to topic[{topic}] is forbidden: its perm is {config.perm}, which lacks write (2)"
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        unserved = unserved_attribute(config.attributes)
        if unserved:
            raise BrokerResponseError(ResponseCode.MESSAGE_ILLEGAL, f"topic[{topic}] has {unserved}, {_NOT_WRITTEN}")
        return config

    def _create(self, header: SendMessageRequestHeader, connection: Connection) -> TopicConfig:
        topic = header.topic
        sys_flag = 0
        if header.unit_mode:
            sys_flag = _UNIT_SUB_FLAG if topic.startswith(RETRY_GROUP_TOPIC_PREFIX) else _UNIT_FLAG
        created = self._manager.create_in_send_message(
            topic,
            header.default_topic,
            connection.remote_address,
            header.default_topic_queue_nums,
            sys_flag,
            connection.share,
        )
        if created is None and topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            created = self._manager.create_in_send_message_back(
                topic, 1, PERM_READ_WRITE, sys_flag, share=connection.share
            )
        if created is None:
            remark = (
                f"topic[{topic}] not exist, apply first please! Create it with mqadmin updateTopic; "
                f"autoCreateTopicEnable is {str(self._config.auto_create_topic_enable).lower()} here"
            )
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, remark)
        return created


_PERM = PERM_READ_WRITE


class RetryAndDlq:
    """Redirects messages whose retries are used up to the dead letters of their group.

    Args:
        subscription_groups: retry limits.
        topic_configs: table in which the dead-letter topic is created.
        locks: locks of groups that consume in order, whose failed messages are dead letters at once.
        stats: counters of dead letters.
    """

    def __init__(
        self,
        subscription_groups: SubscriptionGroupManager,
        topic_configs: TopicConfigManager,
        locks: RebalanceLockManager,
        stats: BrokerStatsManager,
    ) -> None:
        self._subscription_groups = subscription_groups
        self._topic_configs = topic_configs
        self._locks = locks
        self._stats = stats

    def redirect(self, header: SendMessageRequestHeader, message: MessageExtBrokerInner) -> None:
        """Turn a message for ``%RETRY%<group>`` into one for ``%DLQ%<group>`` when its retries are used up.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST.
        """
        name = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        group = self._subscription_groups.find_for_pull(name)
        if group is None:
            remark = f"subscription group not exist, {name}"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        limit = group.retry_max_times if header.max_reconsume_times is None else header.max_reconsume_times
        if header.reconsume_times <= limit and self._locks.is_lock_all_expired(name):
            return
        topic = DLQ_GROUP_TOPIC_PREFIX + name
        self._topic_configs.create_in_send_message_back(topic, 1, _PERM)
        message.topic = topic
        message.queue_id = 0
        message.properties = replace_property(message.properties, DELAY, b"0")
        self._stats.dead_letter(header.topic, name).add(1, len(message.body))
