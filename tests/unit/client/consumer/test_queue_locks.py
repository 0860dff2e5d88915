"""Locks of queues at brokers."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.consumer.queue_locks import QueueLocks
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import LockBatchRequestBody, LockBatchResponseBody
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.scripted_server import ScriptedServer, name_server, route_of

FIRST, SECOND = MessageQueue("T", "broker-a", 0), MessageQueue("T", "broker-a", 1)
ELSEWHERE = MessageQueue("T", "broker-b", 0)


def lock(_fields: dict[str, str], body: bytes) -> Command:
    return response(body=LockBatchResponseBody(LockBatchRequestBody.decode(body).mq_set[:1]).encode())


class Stage:
    def __init__(self) -> None:
        self.client: ClientInstance
        self.broker = ScriptedServer(
            {RequestCode.LOCK_BATCH_MQ: lock, RequestCode.UNLOCK_BATCH_MQ: lambda _fields, _body: response()}
        )


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage()
        await stack.enter_async_context(stage.broker)
        routes = {"T": route_of({"broker-a": stage.broker.address, "broker-b": "127.0.0.1:1"})}
        names = await stack.enter_async_context(name_server(routes))
        stage.client = await stack.enter_async_context(ClientInstance(names.address))
        yield stage


async def test_each_broker_locks_its_queues(stage: Stage, caplog: pytest.LogCaptureFixture):
    result = await QueueLocks(stage.client, "CG").lock([FIRST, ELSEWHERE, SECOND])
    assert (result.locked, result.unknown) == ({FIRST}, {ELSEWHERE})
    (asked,) = stage.broker.of(RequestCode.LOCK_BATCH_MQ)
    body = LockBatchRequestBody.decode(asked.body)
    assert (body.consumer_group, body.client_id) == ("CG", stage.client.client_id)
    assert body.mq_set == [FIRST, SECOND]
    assert "locking 1 queues at broker-b failed" in caplog.text


async def test_each_broker_unlocks_its_queues(stage: Stage, caplog: pytest.LogCaptureFixture):
    await QueueLocks(stage.client, "CG").unlock([FIRST, ELSEWHERE])
    (asked,) = stage.broker.of(RequestCode.UNLOCK_BATCH_MQ)
    assert LockBatchRequestBody.decode(asked.body).mq_set == [FIRST]
    assert "unlocking 1 queues at broker-b failed" in caplog.text
