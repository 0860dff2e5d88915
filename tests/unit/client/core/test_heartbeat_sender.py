"""Heartbeats: to whom, when, what is in them, and on a loop that user code blocks."""

import asyncio
import re
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from rocketbroker.client.core import heartbeat_sender
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.heartbeat_sender import HeartbeatSender, LoopWatchdog
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.remoting.bodies.client import ConsumerData, HeartbeatData
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.scripted_server import Asked, ScriptedServer, name_server, route_of
from tests.support.waiting import until, wait_until

BEAT = RequestCode.HEART_BEAT


async def test_heartbeats_come_regularly_from_producers_and_consumers():
    remoting = RemotingClient()
    asked: list[bool] = []
    async with ScriptedServer({}) as broker:

        def addresses(masters_only: bool) -> set[str]:
            asked.append(masters_only)
            return {broker.address}

        sender = HeartbeatSender(remoting, "id", addresses, interval_s=0.01)
        await sender.start()
        sender.register_producer("PG")
        await until(lambda: len(broker.of(BEAT)) >= 2)
        sender.register_consumer(ConsumerData("CG"))
        count = len(broker.of(BEAT))
        await until(lambda: len(broker.of(BEAT)) >= count + 2)
        await sender.stop()
        first, last = (HeartbeatData.decode(broker.of(BEAT)[index].body) for index in (0, -1))
        await remoting.stop()
    assert (first.client_id, [each.group_name for each in first.producer_data_set]) == ("id", ["PG"])
    assert [each.group_name for each in last.consumer_data_set] == ["CG"]
    assert (asked[0], asked[-1]) == (True, False)


async def test_nothing_is_sent_without_a_group():
    sender = HeartbeatSender(RemotingClient(), "id", lambda _masters_only: pytest.fail("asked for addresses"))
    await sender.send_to_all()


async def test_a_broker_is_greeted_again_after_a_loss_or_a_change():
    remoting = RemotingClient()
    async with ScriptedServer({}) as broker:
        sender = HeartbeatSender(remoting, "id", lambda _masters_only: set())
        sender.register_producer("PG")
        for _ in range(3):
            await sender.greet(broker.address)
        assert len(broker.of(BEAT)) == 1
        sender.connection_lost()
        await sender.greet(broker.address)
        assert len(broker.of(BEAT)) == 1, "the loss of another connection changes nothing here"
        remoting.close_address(broker.address)
        sender.connection_lost()
        await sender.greet(broker.address)
        sender.register_consumer(ConsumerData("CG"))
        await sender.greet(broker.address)
        assert len(broker.of(BEAT)) == 3
        await remoting.stop()


async def test_a_refused_heartbeat_is_tried_again(caplog: pytest.LogCaptureFixture):
    remoting = RemotingClient()
    answers = [response(ResponseCode.SYSTEM_BUSY, "busy"), response()]
    async with ScriptedServer({BEAT: lambda _fields, _body: answers.pop(0)}) as broker:
        sender = HeartbeatSender(remoting, "id", lambda _masters_only: set())
        await sender.greet(broker.address)
        await sender.greet(broker.address)
        await remoting.stop()
    assert answers == []
    assert "CODE: 2" in caplog.text


async def test_the_version_of_a_broker_lasts_as_long_as_its_connection():
    remoting = RemotingClient()
    async with ScriptedServer({}) as broker:
        sender = HeartbeatSender(remoting, "id", lambda _masters_only: set())
        assert await sender.broker_version(broker.address, 60) is None
        sender.greet_soon(broker.address)
        assert await sender.broker_version(broker.address, 60) == response().version
        remoting.close_address(broker.address)
        sender.connection_lost()
        assert await sender.broker_version(broker.address, 60) is None
        await sender.stop()
        await remoting.stop()


async def test_a_broker_is_unregistered_from_after_a_change_of_groups():
    remoting = RemotingClient()
    async with ScriptedServer({}) as gone, ScriptedServer({}) as broker:
        sender = HeartbeatSender(remoting, "id", lambda _masters_only: {gone.address, broker.address})
        sender.register_consumer(ConsumerData("CG"))
        await sender.send_to_all()
        remoting.close_address(gone.address)
        sender.connection_lost()
        sender.register_producer("PG")
        await sender.unregister_consumer("CG")
        (goodbye,) = broker.of(RequestCode.UNREGISTER_CLIENT)
        assert gone.of(RequestCode.UNREGISTER_CLIENT) == [], "it forgot the client with the connection"
        await remoting.stop()
    assert goodbye.fields == {"clientID": "id", "consumerGroup": "CG"}


async def test_heartbeats_from_a_thread_do_not_need_a_greeting(monkeypatch: pytest.MonkeyPatch):
    remoting = RemotingClient()
    beats: list[str] = []
    async with ScriptedServer({}) as broker:
        sender = HeartbeatSender(remoting, "id", lambda _masters_only: {broker.address})
        sender.register_consumer(ConsumerData("CG"))
        await sender.send_to_all()
        sender.register_producer("PG")

        def send(address: str, _command: Command) -> bool:
            beats.append(address)
            return True

        monkeypatch.setattr(remoting, "send_from_thread", send)
        assert sender.send_from_thread() == 1
        await remoting.stop()
    assert beats == [broker.address]


async def test_signing_off_names_the_group_and_outlives_a_dead_broker():
    remoting = RemotingClient()
    async with ScriptedServer({}) as dead, ScriptedServer({}) as broker:
        sender = HeartbeatSender(remoting, "id", lambda _masters_only: set())
        sender.register_consumer(ConsumerData("CG"))
        await sender.greet(dead.address)
        await sender.greet(broker.address)
        await dead.stop()
        await sender.unregister_consumer("CG")
        (goodbye,) = broker.of(RequestCode.UNREGISTER_CLIENT)
        await remoting.stop()
    assert goodbye.fields == {"clientID": "id", "consumerGroup": "CG"}


def block_until(condition: Callable[[], bool], limit_s: float = 60) -> None:
    """Block the event loop until a condition holds."""
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


@contextmanager
def servers_in_a_thread() -> Iterator[tuple[ScriptedServer, ScriptedServer]]:
    """Run a broker with topic T and its name server on an event loop of their own."""
    broker, names = ScriptedServer({}), name_server({})
    ready, loops = threading.Event(), []

    async def serve() -> None:
        nonlocal names
        stopped = asyncio.Event()
        async with broker, name_server({"T": route_of({"broker-a": broker.address})}) as names:
            loops.append((asyncio.get_running_loop(), stopped))
            ready.set()
            await stopped.wait()

    thread = threading.Thread(target=asyncio.run, args=[serve()])
    thread.start()
    try:
        assert ready.wait(60)
        yield broker, names
    finally:
        loop, stopped = loops[0]
        loop.call_soon_threadsafe(stopped.set)
        thread.join()


class Heartbeats:
    """Count of heartbeats."""

    def __init__(self) -> None:
        self.sent = 0

    def send(self) -> int:
        self.sent += 1
        return 1


def oneway_beats(broker: ScriptedServer) -> list[Asked]:
    return [each for each in broker.of(RequestCode.HEART_BEAT) if each.oneway]


async def test_a_broker_hears_a_client_whose_loop_is_blocked():
    with servers_in_a_thread() as (broker, names):
        config = ClientConfig(names.address, heartbeat_broker_interval_s=0.05, loop_blocked_warning_s=30)
        async with Producer("PG", config) as producer:
            await producer.fetch_publish_queues("T")
            await until(lambda: broker.of(RequestCode.HEART_BEAT))
            block_until(lambda: len(oneway_beats(broker)) >= 2)
        beats = oneway_beats(broker)
        assert len(beats) >= 2
        (data,) = HeartbeatData.decode(beats[0].body).producer_data_set
        assert data.group_name == "PG"


async def test_the_blocking_call_is_named_and_heartbeats_are_sent(caplog: pytest.LogCaptureFixture):
    heartbeats = Heartbeats()
    watchdog = LoopWatchdog(heartbeats.send, heartbeat_interval_s=0.02, warn_after_s=0.01)
    await watchdog.start()
    async with asyncio.timeout(60):
        # The machine may stop this process elsewhere for as long; that is named then.
        while "by 'time.sleep(0.1)" not in caplog.text:
            heartbeats.sent = 0
            time.sleep(0.1)  # noqa: ASYNC251 - blocks the loop
            block_until(lambda: heartbeats.sent > 1)
            await asyncio.sleep(0.02)
    await until(lambda: "the event loop runs again after" in caplog.text)
    await watchdog.stop()
    assert re.search(r"heartbeats sent meanwhile: [1-9]", caplog.text)
    assert "the event loop has been blocked for" in caplog.text
    assert f"({__file__}:" in caplog.text


async def test_a_loop_that_runs_is_left_alone(caplog: pytest.LogCaptureFixture):
    heartbeats = Heartbeats()
    watchdog = LoopWatchdog(heartbeats.send, heartbeat_interval_s=60, warn_after_s=30)
    await watchdog.start()
    await asyncio.sleep(0.05)
    await watchdog.stop()
    assert (heartbeats.sent, caplog.text) == (0, "")


def watch_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "loop-watchdog"]


async def test_the_clients_of_a_loop_share_a_thread_and_a_warning(caplog: pytest.LogCaptureFixture):
    one, other = Heartbeats(), Heartbeats()
    watchdogs = [
        LoopWatchdog(one.send, heartbeat_interval_s=0.02, warn_after_s=30),
        LoopWatchdog(other.send, heartbeat_interval_s=0.02, warn_after_s=0.01),
    ]
    for watchdog in watchdogs:
        await watchdog.start()
    assert len(watch_threads()) == 1
    block_until(lambda: one.sent > 0 and other.sent > 0 and "has been blocked for" in caplog.text)
    await until(lambda: "the event loop runs again after" in caplog.text)
    assert one.sent
    assert other.sent
    await watchdogs[0].stop()
    assert len(watch_threads()) == 1
    await watchdogs[1].stop()
    assert watch_threads() == []


def test_a_loop_that_does_not_run_is_not_blocked(caplog: pytest.LogCaptureFixture):
    heartbeats = Heartbeats()
    loop = asyncio.new_event_loop()
    watchdog = LoopWatchdog(heartbeats.send, heartbeat_interval_s=0.06, warn_after_s=0.06)
    loop.run_until_complete(watchdog.start())
    time.sleep(0.2)
    loop.run_until_complete(watchdog.stop())
    loop.close()
    assert (heartbeats.sent, caplog.text) == (0, "")


def test_the_thread_ends_with_its_loop():
    loop = asyncio.new_event_loop()
    loop.run_until_complete(LoopWatchdog(Heartbeats().send, heartbeat_interval_s=0.02).start())
    assert len(watch_threads()) == 1
    loop.close()
    wait_until(lambda: watch_threads() == [], "the thread ends")


async def test_the_thread_ends_without_an_executor():
    executor = ThreadPoolExecutor(1)
    executor.shutdown()  # as when the interpreter ends
    asyncio.get_running_loop().set_default_executor(executor)
    watchdog = LoopWatchdog(Heartbeats().send, heartbeat_interval_s=60)
    await watchdog.start()
    await watchdog.stop()
    assert watch_threads() == []


async def test_an_answer_during_the_check_is_no_error():
    class Answering(heartbeat_sender._WatchThread):
        asked = iter([None, 1.0])

        @property
        def _asked_at(self) -> float | None:
            return next(self.asked, None)

        @_asked_at.setter
        def _asked_at(self, value: float | None) -> None:
            pass

    thread = Answering(asyncio.get_running_loop())
    thread._look()
    thread._look()


async def test_none_switches_the_watchdog_off():
    async with ClientInstance(ClientConfig("127.0.0.1:1", loop_blocked_warning_s=None)):
        assert watch_threads() == []


FORK = """
    import asyncio, os
    from rocketbroker.client import ClientStateError, Message, Producer

    async def main():
        async with Producer("PG", "{address}") as producer:
            child = os.fork()
            if child == 0:
                try:
                    await producer.send(Message("T", b"body"))
                except ClientStateError as error:
                    await producer.close()
                    os._exit(7 if "make one after the fork" in str(error) else 1)
                os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
            print("queues:", len(await producer.fetch_publish_queues("T")))

    asyncio.run(main())
"""


def test_a_forked_process_leaves_the_connections_to_the_first():
    with servers_in_a_thread() as (_broker, names):
        script = textwrap.dedent(FORK.replace("{address}", names.address))
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.stdout, done.returncode) == ("queues: 4\n", 0), done.stderr
