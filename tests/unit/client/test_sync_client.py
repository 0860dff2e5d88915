"""Clients used from synchronous code."""

import asyncio
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager

import pytest

from rocketbroker.client import sync_client
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.consumer.push_consumer import PushConsumer
from rocketbroker.client.core.errors import ClientStateError, InvalidMessageError
from rocketbroker.client.core.message import Message
from rocketbroker.client.core.received_message import ReceivedMessage
from rocketbroker.client.producer.producer import Producer
from rocketbroker.client.sync_client import SyncClient
from rocketbroker.testing import RocketMQServer
from tests.support.waiting import LIMIT_S


@pytest.fixture
def mq() -> Iterator[RocketMQServer]:
    with RocketMQServer() as mq:
        yield mq


@pytest.fixture
def runs() -> Callable[[], bool]:
    """Tell whether a client's thread runs that did not run before the test."""
    before = {*threading.enumerate()}
    return lambda: any(thread.name == "sync-client" for thread in {*threading.enumerate()} - before)


def test_a_script_sends_consumes_and_administers(mq: RocketMQServer, runs: Callable[[], bool]):
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
    assert not runs()


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


def test_the_thread_starts_on_first_use_and_a_closed_client_is_refused(runs: Callable[[], bool]):
    sync = SyncClient()
    assert not runs()

    async def double(number: int) -> int:
        return 2 * number

    assert sync.call(double(3)) == 6
    assert runs()
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


@contextmanager
def in_a_thread(work: Callable[[], object]) -> Iterator[list[BaseException]]:
    """Run a function in another thread until the end of the block; yield the list of its error."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield errors
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_a_call_that_close_interrupts_raises():
    sync, started = SyncClient(), threading.Event()

    async def wait() -> None:
        started.set()
        await asyncio.sleep(3600)

    with in_a_thread(lambda: sync.call(wait())) as errors:
        assert started.wait(LIMIT_S)
        sync.close()
    (error,) = errors
    assert isinstance(error, ClientStateError)
    assert str(error) == "this SyncClient was closed during the call"


def test_a_call_that_cancels_itself_is_not_taken_for_a_closed_client():
    async def cancel() -> None:
        raise asyncio.CancelledError

    with SyncClient() as sync, pytest.raises(CancelledError):
        sync.call(cancel())


def test_a_call_cannot_close_its_own_client(runs: Callable[[], bool]):
    sync = SyncClient()

    async def close() -> None:
        sync.close()

    with pytest.raises(ClientStateError, match="close the SyncClient outside of it"):
        sync.call(close())
    sync.close()
    assert not runs()


def test_a_loop_over_messages_ends_when_another_thread_closes(mq: RocketMQServer):
    sync, received, closed = SyncClient(), threading.Event(), threading.Event()
    producer = sync.open(Producer("orders", mq.namesrv_addr))
    consumer = sync.open(PushConsumer("billing", mq.namesrv_addr))
    sync.call(consumer.subscribe("Orders"))
    sync.call(producer.send(Message("Orders", b"{}")))
    bodies = []

    def consume() -> None:
        for message in sync.messages(consumer):
            bodies.append(message.body)
            received.set()
            assert closed.wait(LIMIT_S)

    with in_a_thread(consume) as errors:
        assert received.wait(LIMIT_S)
        sync.close()
        closed.set()
    assert (bodies, errors) == ([b"{}"], [])


def test_an_error_that_leaves_with_has_the_frames_of_its_block():
    def fail() -> None:
        with SyncClient() as sync:
            sync.call(asyncio.sleep(0))
            raise KeyError("broken")

    with pytest.raises(KeyError) as caught:
        fail()
    names = {frame.name for frame in traceback.extract_tb(caught.value.__traceback__)}
    assert names == {"test_an_error_that_leaves_with_has_the_frames_of_its_block", "fail"}


def test_clients_left_open_are_closed_when_the_interpreter_ends(runs: Callable[[], bool]):
    sync = SyncClient()
    sync.call(asyncio.sleep(0))
    sync_client._close_running()
    assert not runs()
    with pytest.raises(ClientStateError, match="closed; make a new one"):
        sync.call(asyncio.sleep(0))
