"""Clients and progress for the administration of a broker."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.waiting_messages import CopyDelivery
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.remoting.bodies.client import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeConnection


@pytest.fixture
def consumer(parts: SimpleNamespace):
    """Registers a consumer of a group that subscribes to topics; gives its connection."""

    def register(
        group: str,
        client_id: str,
        *topics: str,
        port: int = 50000,
        start: str = "CONSUME_FROM_LAST_OFFSET",
        model: MessageModel = MessageModel.CLUSTERING,
    ) -> FakeConnection:
        connection = FakeConnection(f"127.0.0.1:{port}")
        data = ConsumerData(
            group,
            ConsumeType.CONSUME_PASSIVELY,
            model,
            ConsumeFromWhere(start),
            [SubscriptionData(topic, "*", 1795256109612) for topic in topics],
        )
        channel = ClientChannelInfo(connection, client_id, "JAVA", 513, parts.clock.monotonic())
        parts.consumers.register(channel, data)
        return connection

    return register


@pytest.fixture
def producer(parts: SimpleNamespace):
    """Registers a producer of a group; gives its connection."""

    def register(group: str, client_id: str, port: int = 50001) -> FakeConnection:
        connection = FakeConnection(f"127.0.0.1:{port}")
        parts.producers.register(group, ClientChannelInfo(connection, client_id, "JAVA", 513, parts.clock.monotonic()))
        return connection

    return register


@pytest.fixture
def schedule(parts: SimpleNamespace, store: MessageStore, tmp_path: Path) -> ScheduleMessageService:
    """Delivery of delayed messages, not started."""
    return ScheduleMessageService(
        tmp_path / "delayOffset.json",
        CopyDelivery(store.appender, store.entry_reader, parts.stats, host_bytes("127.0.0.1", 10911)),
        store.queues,
        store.flusher,
        delay_levels={1: 1000, 2: 5000, 3: 10000},
        clock=parts.clock,
    )
