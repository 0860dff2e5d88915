"""Dead letters: messages of retry topics whose retries are used up (SendMessageProcessor.handleRetryAndDLQ)."""

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.schedule_message_service import DELAY
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_properties import replace_property
from rocketbroker.codec.message.topic_validator import DLQ_GROUP_TOPIC_PREFIX, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ_WRITE
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

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
