"""Options of Spark's Kafka source that our formats lack, with what to use instead."""

from collections.abc import Iterable
from typing import Final

from rocketbroker.common.errors import ConfigError

_INSTEAD: Final = {
    "assign": "name the topics by subscribe, and queues by startingOffsets and endingOffsets",
    "endingOffsetsByTimestamp": "give endingTimestamp, as JSON by topic if topics differ",
    "fetchOffset.numRetries": "brokers that are away are asked again for two minutes",
    "fetchOffset.retryIntervalMs": "brokers that are away are asked again each second",
    "groupIdPrefix": "give consumerGroup, the whole name of the group",
    "includeHeaders": "the column properties has them; includeProperties keeps some",
    "kafkaConsumer.pollTimeoutMs": "brokers that are away are asked again for two minutes",
    "maxRecordsPerPartition": "give minPartitions",
    "startingOffsetsByTimestamp": "give startingTimestamp, as JSON by topic if topics differ",
    "startingOffsetsByTimestampStrategy": "a time after the last message is the end of the queue",
}
_PREFIX: Final = "kafka."


def refuse_kafka_options(form: str, names: Iterable[str]) -> None:
    """Raise :class:`ConfigError` for an option that only Spark's Kafka source has; names may be in any case."""
    instead = {name.lower(): advice for name, advice in _INSTEAD.items()}
    for name in names:
        advice = instead.get(name.lower())
        if name.lower().startswith(_PREFIX):
            advice = "RocketMQ's clients have no such settings; namesrvAddr names the cluster"
        if advice is not None:
            raise ConfigError(f'format("{form}") has no option {name}, which is one of Kafka: {advice}')
