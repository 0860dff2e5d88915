"""Topics that a broker has from its first start (TopicConfigManager.init of RocketMQ 5.5.0)."""

from rocketbroker.codec.message.topic_validator import (
    AUTO_CREATE_TOPIC_KEY_TOPIC,
    RMQ_SYS_BENCHMARK_TOPIC,
    RMQ_SYS_OFFSET_MOVED_EVENT,
    RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC,
    RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC,
    RMQ_SYS_SCHEDULE_TOPIC,
    RMQ_SYS_SELF_TEST_TOPIC,
    RMQ_SYS_TRANS_HALF_TOPIC,
    RMQ_SYS_TRANS_OP_HALF_TOPIC,
    SYNC_BROKER_MEMBER_GROUP_PREFIX,
    SYSTEM_TOPIC_PREFIX,
)
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.perm_name import PERM_INHERIT, PERM_READ_WRITE
from rocketbroker.codec.storefile import timer_slots
from rocketbroker.common.config import BrokerConfig

TIMER_TOPIC = timer_slots.TIMER_TOPIC
REPLY_TOPIC_POSTFIX = "_REPLY_TOPIC"
REVIVE_TOPIC_PREFIX = SYSTEM_TOPIC_PREFIX + "REVIVE_LOG_"

SCHEDULE_TOPIC_QUEUE_NUM = 18
BENCHMARK_TOPIC_QUEUE_NUM = 1024
CLUSTER_TOPIC_QUEUE_NUM = 16
REVIVE_TOPIC_QUEUE_NUM = 8


def system_topic_configs(config: BrokerConfig) -> list[TopicConfig]:
    """Return the system topics of a broker with this configuration."""
    cluster, broker = config.broker_cluster_name, config.broker_name
    topics = [
        _topic(RMQ_SYS_SELF_TEST_TOPIC),
        _topic(RMQ_SYS_BENCHMARK_TOPIC, BENCHMARK_TOPIC_QUEUE_NUM),
        _topic(
            cluster, CLUSTER_TOPIC_QUEUE_NUM, PERM_INHERIT | (PERM_READ_WRITE if config.cluster_topic_enable else 0)
        ),
        _topic(broker, 1, PERM_INHERIT | (PERM_READ_WRITE if config.broker_topic_enable else 0)),
        _topic(RMQ_SYS_OFFSET_MOVED_EVENT),
        _topic(RMQ_SYS_SCHEDULE_TOPIC, SCHEDULE_TOPIC_QUEUE_NUM),
        _topic(cluster + REPLY_TOPIC_POSTFIX),
        _topic(REVIVE_TOPIC_PREFIX + cluster, REVIVE_TOPIC_QUEUE_NUM),
        _topic(SYNC_BROKER_MEMBER_GROUP_PREFIX + broker, 1, PERM_INHERIT),
        _topic(RMQ_SYS_TRANS_HALF_TOPIC),
        _topic(RMQ_SYS_TRANS_OP_HALF_TOPIC),
        _topic(RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC),
        _topic(RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC),
        _topic(TIMER_TOPIC),
    ]
    if config.auto_create_topic_enable:
        topics.append(
            _topic(AUTO_CREATE_TOPIC_KEY_TOPIC, config.default_topic_queue_nums, PERM_INHERIT | PERM_READ_WRITE)
        )
    if config.trace_topic_enable:
        topics.append(_topic(config.msg_trace_topic_name))
    return topics


def _topic(name: str, queue_nums: int = 1, perm: int = PERM_READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_nums, write_queue_nums=queue_nums, perm=perm)
