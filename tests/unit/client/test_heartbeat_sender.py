"""Heartbeats: to whom, when, and what is in them."""

import pytest

from rocketbroker.client.heartbeat_sender import HeartbeatSender
from rocketbroker.codec.remoting.bodies.client import ConsumerData, HeartbeatData
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.scripted_server import ScriptedServer
from tests.support.waiting import until

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
