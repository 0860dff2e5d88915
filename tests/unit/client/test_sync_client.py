"""Clients used from synchronous code."""

import asyncio
import os
import threading
from collections.abc import Iterator

import pytest

from rocketbroker.client.admin_client import AdminClient
from rocketbroker.client.consumer.received_message import ReceivedMessage
from rocketbroker.client.errors import ClientStateError, InvalidMessageError
from rocketbroker.client.message import Message
from rocketbroker.client.producer import Producer
from rocketbroker.client.push_consumer import PushConsumer
from rocketbroker.client.sync_client import SyncClient
from rocketbroker.testing import RocketMQServer


@pytest.fixture
def mq() -> Iterator[RocketMQServer]:
    with RocketMQServer() as mq:
        yield mq


def threads() -> set[str]:
    return {thread.name for thread in threading.enumerate()}


def test_a_script_sends_consumes_and_administers(mq: RocketMQServer):
    with SyncClient() as sync:
        producer = sync.open(Producer("orders", mq.namesrv_addr))
        consumer = sync.open(PushConsumer("billing", mq.namesrv_addr))
        admin = sync.open(AdminClient(mq.namesrv_addr))
        sync.call(consumer.subscribe("Orders"))
        for number in range(3):
            sync.call(producer.send(Message("Orders", b"%d" % number)))
        bodies = set()
        for message in sync.messages(consumer):
            bodies.add(message.body)
            if len(bodies) == 3:
                break
        assert bodies == {b"0", b"1", b"2"}
        assert "Orders" in sync.call(admin.fetch_all_topic_list())
        with pytest.raises(InvalidMessageError, match="the message body is empty"):
            sync.call(producer.send(Message("Orders", b"")))
    assert "sync-client" not in threads()


def test_a_message_whose_loop_raised_is_given_back(mq: RocketMQServer):
    received: list[ReceivedMessage] = []

    def run() -> None:
        with SyncClient() as sync:
            producer = sync.open(Producer("orders", mq.namesrv_addr))
            consumer = sync.open(PushConsumer("billing", mq.namesrv_addr))
            sync.call(consumer.subscribe("Orders"))
            sync.call(producer.send(Message("Orders", b"{}")))
            for message in sync.messages(consumer):
                received.append(message)
                raise KeyError("broken")

    with pytest.raises(KeyError, match="broken"):
        run()
    (message,) = received
    assert message.outcome is not None
    assert message.outcome.name == "RETRIED"


def test_the_thread_starts_on_first_use_and_a_closed_client_is_refused():
    sync = SyncClient()
    assert "sync-client" not in threads()

    async def double(number: int) -> int:
        return 2 * number

    assert sync.call(double(3)) == 6
    assert "sync-client" in threads()
    sync.close()
    sync.close()
    with pytest.raises(ClientStateError, match="closed; make a new one"):
        sync.call(double(3))


async def test_a_coroutine_awaits_instead():
    with pytest.raises(ClientStateError, match="await the call instead"):
        SyncClient().call(asyncio.sleep(0))


def test_a_forked_process_makes_its_own(monkeypatch: pytest.MonkeyPatch):
    sync = SyncClient()
    pid = os.getpid()
    monkeypatch.setattr(os, "getpid", lambda: pid + 1)
    with pytest.raises(ClientStateError, match="forked from; make one here"):
        sync.call(asyncio.sleep(0))
    sync.close()
