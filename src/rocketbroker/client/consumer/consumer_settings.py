"""Settings that all members of a group's consumers have."""

from pathlib import Path
from typing import TypedDict

import msgspec

from rocketbroker.client.consumer.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from rocketbroker.client.consumer.process_queue import FlowControl
from rocketbroker.client.consumer.rebalance import AllocateMessageQueueAveragely, AllocateMessageQueueStrategy
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import OptionError
from rocketbroker.client.core.options import Count, CountFrom0, Seconds, SecondsOrForever
from rocketbroker.codec.remoting.bodies.client import ConsumeFromWhere, ConsumeType, MessageModel

_STARTS = (
    ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
)


class ConsumerOptions(TypedDict, total=False):
    """Settings that PushConsumer and LitePullConsumer share, with their defaults in ConsumerSettings.

    Args:
        message_model: CLUSTERING shares the queues; BROADCASTING gives each consumer every message. The name as a text
            will do, here and for the next option.
        consume_from_where: start of a new group, by default CONSUME_FROM_LAST_OFFSET; ``"last"``, ``"first"`` and
            ``"timestamp"`` for short.
        consume_timestamp_ms: store time for CONSUME_FROM_TIMESTAMP.
        strategy: allocation of the queues to the members; the same for all, averagely by default.
        flow_control: limits of the messages that wait for their consumption or for a poll.
        offset_store: where offsets are kept; by default at the broker, for BROADCASTING in a file in
            ``~/.rocketmq_offsets``.
        pull_batch_size: most messages of one pull, by default 32.
        require_topic: raise TopicRouteError for a topic that does not exist, instead of waiting for it.
        rebalance_interval_s: seconds between rebalances when no member joins or leaves, by default 20.
        damaged_message_retry_s: seconds for which a message with a wrong checksum is pulled again before it is
            skipped, by default 60; 0 skips it at once, ``math.inf`` never.
        persist_interval_s: seconds between commits of offsets, by default 5 (persistConsumerOffsetInterval).
    """

    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp_ms: CountFrom0
    strategy: AllocateMessageQueueStrategy | None
    flow_control: FlowControl | None
    offset_store: OffsetStore | None
    pull_batch_size: Count
    require_topic: bool
    rebalance_interval_s: Seconds
    damaged_message_retry_s: SecondsOrForever
    persist_interval_s: Seconds


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """``ConsumerOptions`` with their defaults, and what follows from the kind of consumer."""

    consume_type: ConsumeType
    message_model: MessageModel = MessageModel.CLUSTERING
    consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET
    consume_timestamp_ms: int = 0
    strategy: AllocateMessageQueueStrategy | None = None
    flow_control: FlowControl | None = None
    offset_store: OffsetStore | None = None
    pull_batch_size: int = 32
    require_topic: bool = False
    rebalance_interval_s: float = 20.0
    damaged_message_retry_s: float = 60.0
    persist_interval_s: float = 5.0
    orderly: bool = False

    def __post_init__(self) -> None:
        """Refuse a start that is not the one that its name promises.

        Raises:
            OptionError: a start that RocketMQ has given up, or CONSUME_FROM_TIMESTAMP without the time.
        """
        where = self.consume_from_where
        if where not in _STARTS:
            raise OptionError(
                f"consume_from_where is {where}, which RocketMQ reads as CONSUME_FROM_LAST_OFFSET; give one of "
                f"{', '.join(_STARTS)}"
            )
        if where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and not self.consume_timestamp_ms:
            raise OptionError(f"consume_from_where is {where} without a time; give consume_timestamp_ms")

    @property
    def locks_queues(self) -> bool:
        """True if the broker locks each queue for its consumer."""
        return self.orderly and self.message_model is MessageModel.CLUSTERING

    def offsets(self, group: str, client: ClientInstance) -> OffsetStore:
        """Return the offset store: by default at the broker, for BROADCASTING in a file as the Java client's."""
        if self.offset_store is not None:
            return self.offset_store
        if self.message_model is MessageModel.CLUSTERING:
            return RemoteBrokerOffsetStore(group, client.offsets)
        folder = Path.home() / ".rocketmq_offsets" / f"{client.client_ip}@DEFAULT"
        return LocalFileOffsetStore(folder / group / "offsets.json")

    def allocation(self) -> AllocateMessageQueueStrategy:
        """Return the strategy, averagely by default."""
        return self.strategy or AllocateMessageQueueAveragely()
