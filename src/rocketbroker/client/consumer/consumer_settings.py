"""Settings that all members of a group's consumers have."""

from pathlib import Path

import msgspec

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.consumer.flow_control import FlowControl
from rocketbroker.client.consumer.offset_store import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from rocketbroker.client.rebalance.allocate_message_queue import (
    AllocateMessageQueueAveragely,
    AllocateMessageQueueStrategy,
)
from rocketbroker.codec.remoting.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel


class ConsumerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a consumer; its class explains them."""

    consume_type: ConsumeType
    message_model: MessageModel
    consume_from_where: ConsumeFromWhere
    consume_timestamp_ms: int
    strategy: AllocateMessageQueueStrategy | None
    flow_control: FlowControl | None
    offset_store: OffsetStore | None
    pull_batch_size: int
    require_topic: bool
    rebalance_interval_s: float
    persist_interval_s: float
    locks_queues: bool = False

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
