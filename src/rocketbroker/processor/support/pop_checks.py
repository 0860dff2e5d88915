"""Checks of pops, peeks and notifications (the first part of PopMessageProcessor.processRequest)."""

from dataclasses import dataclass
from typing import Final

from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.topic_config import (
    BATCH_CQ,
    PERM_READ,
    QUEUE_TYPE,
    SubscriptionGroupConfig,
    TopicConfig,
)
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.request_checks import check_client_group, illegal_queue

_MOST_MESSAGES: Final = 32
# A year.
_LONGEST_MS: Final = 366 * 86_400_000


def check_invisible_time(invisible_ms: int) -> None:
    """Check the time for which messages are hidden.

    Raises:
        BrokerResponseError: INVALID_PARAMETER if it is negative or longer than a year.
    """
    if not 0 <= invisible_ms <= _LONGEST_MS:
        remark = f"invisibleTime {invisible_ms} is illegal; name 0 to {_LONGEST_MS:,} ms"
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)


@dataclass(frozen=True, slots=True)
class PopChecks:
    """Checks of requests.

    Attributes:
        config: permission of the broker.
        store_config: ``timerWheelEnable``, without which no message would return.
        topics: the topics.
        groups: the groups.
    """

    config: BrokerConfig
    store_config: MessageStoreConfig
    topics: TopicConfigManager
    groups: SubscriptionGroupManager

    def topic(self, connection: Connection, name: str, queue_id: int) -> TopicConfig:
        """Return the topic that a request may read.

        Raises:
            BrokerResponseError: NO_PERMISSION, TOPIC_NOT_EXIST; INVALID_PARAMETER if the queue does not exist, or holds
                whole batches; SYSTEM_ERROR if timer messages are disabled.
        """
        ip = self.config.broker_ip1
        if not self.config.broker_permission & PERM_READ:
            remark = (
                f"the broker[{ip}] pop message is forbidden: its brokerPermission is {self.config.broker_permission}, "
                "which lacks read (4)"
            )
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        if not self.store_config.timer_wheel_enable:
            remark = f"the broker[{ip}] pop message is forbidden because timerWheelEnable is false; set it to true"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        topic = self.topics.select(name)
        if topic is None:
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"topic[{name}] not exist, apply first please!")
        if not topic.perm & PERM_READ:
            remark = f"the topic[{name}] peeking message is forbidden: its perm is {topic.perm}, which lacks read (4)"
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        if queue_id >= topic.read_queue_nums:
            remark = illegal_queue(queue_id, topic, connection)
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        if topic.attributes.get(QUEUE_TYPE) == BATCH_CQ:
            remark = (
                f"topic {name} has {QUEUE_TYPE}={BATCH_CQ}, from which nothing is popped; pull, or use another topic"
            )
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        return topic

    def most(self, number: int) -> None:
        """Check the number of messages that a request asks for.

        Raises:
            BrokerResponseError: INVALID_PARAMETER.
        """
        if not 0 < number <= _MOST_MESSAGES:
            remark = (
                f"the broker[{self.config.broker_ip1}] pop message's num is greater than {_MOST_MESSAGES}: it is "
                f"{number}; ask for 1 to {_MOST_MESSAGES}"
            )
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)

    def group(self, connection: Connection, name: str) -> SubscriptionGroupConfig:
        """Return a group that may consume; create it if it does not exist.

        Raises:
            BrokerResponseError: SUBSCRIPTION_GROUP_NOT_EXIST; NO_PERMISSION, also for a group of the broker's own,
                whose offsets say where a start begins to read.
        """
        check_client_group(name, connection)
        group = self.groups.find(name, connection.share)
        if group is None:
            remark = f"subscription group [{name}] does not exist"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        if not group.consume_enable:
            remark = f"subscription group no permission, {name}: consumeEnable is false"
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
        return group
