"""A server for tests: its life, its faults, its clock, and what it shows of its store."""

import asyncio
import logging
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.client import AdminClient, ClientConfig, Message, Producer, PullConsumer, SendResult
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, ConfigError, RemotingError, RocketBrokerError
from rocketbroker.testing import PULLS, ClockError, RocketMQServer, ServerStateError
from tests.support.leaks import grown, held
from tests.support.tls_files import TlsFiles
from tests.support.waiting import until

LEVEL_2_HOURS = 18


@pytest.fixture
def mq() -> Iterator[RocketMQServer]:
    with RocketMQServer() as server:
        yield server


@pytest.fixture
def temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


async def send(mq: RocketMQServer, *bodies: bytes, topic: str = "Orders", timeout_s: float = 3.0) -> list[SendResult]:
    async with Producer("shop", mq.namesrv_addr) as producer:
        return [await producer.send(Message(topic, body), timeout_s=timeout_s) for body in bodies]


def entries(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def test_an_asyncio_test_sends_and_receives():
    async with RocketMQServer() as mq:
        [sent] = await send(mq, b"order 1")
        async with PullConsumer("billing", mq.namesrv_addr) as consumer:
            pulled = await consumer.pull(sent.message_queue, sent.queue_offset)
    assert [message.body for message in pulled.messages] == [b"order 1"]


def test_a_test_without_asyncio_has_the_same_server(mq: RocketMQServer):
    asyncio.run(send(mq, b"order 1"))
    mq.assert_messages("Orders", [b"order 1"])


async def test_a_topic_is_created_on_all_brokers_with_its_type():
    async with RocketMQServer(brokers=2) as mq:
        mq.create_topic("Reminders", "DELAY")
        async with AdminClient(mq.namesrv_addr) as admin:
            addresses = await admin.fetch_master_addresses("DefaultCluster")
            topics = [await admin.examine_topic_config(each, "Reminders") for each in addresses.values()]
    assert [topic.attributes for topic in topics] == [{"message.type": "DELAY"}] * 2


@pytest.mark.parametrize("checks", [False, True])
async def test_servers_that_take_tls_alone_reach_each_other(tmp_path: Path, *, checks: bool):
    files = TlsFiles(tmp_path)
    trusted = {"tls.client.trustCertPath": str(files.ca)} if checks else {}
    async with RocketMQServer(files.of_server(mode="Enforcing") | trusted) as mq:
        mq.create_topic("Orders")
        async with Producer("shop", ClientConfig(mq.namesrv_addr, tls=files.context())) as producer:
            await producer.send(Message("Orders", b"1"))
        mq.assert_messages("Orders", [b"1"])
        with pytest.raises(RocketBrokerError, match="was lost"):
            await send(mq, b"2")


def test_the_5x_sdks_are_served_where_that_is_asked_for():
    pytest.importorskip("grpc", reason="the extra grpc is not installed")
    from rocketbroker.proxy.messaging_pb2 import Code
    from tests.support.grpc_calls import send_once

    with RocketMQServer(grpc=True, brokers=2) as mq:
        mq.create_topic("Orders")
        endpoints = mq.endpoints
        assert send_once(endpoints, "Orders", b"1") == Code.OK
        mq.restart_broker()
        assert mq.endpoints == endpoints
        assert send_once(endpoints, "Orders", b"2") == Code.OK
        mq.assert_messages("Orders", [b"1", b"2"])


def test_without_grpc_there_are_no_endpoints(mq: RocketMQServer):
    assert mq.endpoints == ""


async def test_a_server_whose_start_fails_leaves_nothing_behind(temp: Path):
    before = held()
    with pytest.raises(ConfigError, match="unknown setting flushDiskTyp; did you mean flushDiskType"):
        async with RocketMQServer({"flushDiskTyp": "SYNC_FLUSH"}):
            pass
    assert grown(before) == []
    assert entries(temp) == []


@pytest.mark.long
@pytest.mark.parametrize("turns", [1, 5, 20])
async def test_a_cancelled_start_leaves_nothing_behind(temp: Path, caplog: pytest.LogCaptureFixture, turns: int):
    before, mq = held(), RocketMQServer()
    starting = asyncio.create_task(mq.__aenter__())
    for _ in range(turns):
        await asyncio.sleep(0.001)
    starting.cancel()
    try:
        await starting
    except asyncio.CancelledError:
        pass
    else:
        await mq.__aexit__(None, None, None)
    assert grown(before) == []
    assert entries(temp) == []
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def test_properties_of_the_server_itself_are_rejected():
    with (
        pytest.raises(ConfigError, match="listenPort is set by the server itself"),
        RocketMQServer({"listenPort": "1"}),
    ):
        pass


def test_a_number_of_brokers_that_cannot_be_is_rejected():
    with pytest.raises(ValueError, match="brokers=0; give a number from 1 to 26"):
        RocketMQServer(brokers=0)


def test_use_before_the_start_and_after_the_end_is_an_error():
    mq = RocketMQServer()
    for _ in range(2):
        for use in (
            lambda: mq.namesrv_addr,
            lambda: mq.endpoints,
            lambda: mq.messages("T"),
            lambda: mq.clock.advance(1),
            mq.freeze,
            mq.flush,
            mq.cut_connections,
        ):
            with pytest.raises(ServerStateError, match="does not run"):
                use()
        with mq, pytest.raises(ServerStateError, match="runs already"), mq:
            pass


def test_a_given_store_keeps_the_messages(tmp_path: Path):
    for count in (1, 2):
        with RocketMQServer(store=tmp_path / "store") as mq:
            asyncio.run(send(mq, b"order"))
            mq.assert_messages("Orders", [b"order"] * count)


# -- clock


async def test_a_delayed_message_arrives_when_the_clock_is_advanced(mq: RocketMQServer):
    async with Producer("shop", mq.namesrv_addr) as producer:
        await producer.send(Message("Orders", b"later", delay_time_level=LEVEL_2_HOURS))
        mq.assert_messages("Orders", [])
        mq.clock.advance(2 * 3600)
        await mq.eventually(lambda: mq.assert_messages("Orders", [b"later"]))


def test_the_clock_does_not_go_back(mq: RocketMQServer):
    before = mq.clock.time_ms()
    for seconds in (-1, float("nan"), float("inf"), 1e12):
        with pytest.raises(ClockError, match="cannot advance by"):
            mq.clock.advance(seconds)
    assert before <= mq.clock.time_ms() < before + 60_000


async def test_a_reset_leaves_a_new_server_on_the_same_addresses():
    async with RocketMQServer(brokers=2) as mq, Producer("shop", mq.namesrv_addr) as producer:
        sent = await producer.send(Message("Orders", b"1"))
        await producer.send(Message("Orders", b"later", delay_time_level=LEVEL_2_HOURS))
        async with PullConsumer("billing", mq.namesrv_addr) as consumer:
            await consumer.commit_offset(sent.message_queue, sent.queue_offset + 1)
            await mq.eventually(lambda: mq.offsets("billing", "Orders") != {})
        addresses = mq.namesrv_addr, mq.broker_addr
        mq.clock.advance(24 * 3600)
        mq.faults.answer(ResponseCode.SYSTEM_BUSY, times=None)
        mq.fill_disk()
        mq.stop_broker("broker-b")
        mq.freeze()

        mq.reset()

        assert (mq.namesrv_addr, mq.broker_addr) == addresses
        assert mq.messages("Orders") == []
        assert mq.offsets("billing", "Orders") == {}
        assert abs(mq.clock.time_ms() - time.time_ns() // 1_000_000) < 60_000
        mq.restart_broker("broker-b")
        await producer.send(Message("Orders", b"2"))  # the same producer
        mq.clock.advance(3 * 3600)
        mq.assert_messages("Orders", [b"2"])


def test_a_store_that_is_kept_is_not_reset(tmp_path: Path):
    with RocketMQServer(store=tmp_path) as mq:
        asyncio.run(send(mq, b"1"))
        with pytest.raises(ServerStateError, match=rf"reset\(\) would remove what {tmp_path} keeps; leave out store="):
            mq.reset()
        mq.assert_messages("Orders", [b"1"])


@pytest.mark.parametrize(("properties", "most_mib"), [({}, 18), ({"maxMessageSize": str(10 << 20)}, 42)])
def test_an_empty_server_takes_little_room(properties: dict[str, str], most_mib: int):
    with RocketMQServer(properties) as mq:
        mq.flush()
        asyncio.run(send(mq, bytes((4 << 20) - 1000), timeout_s=20))
        files = [path for path in mq.store.rglob("*") if path.is_file()]
        taken = sum(path.stat().st_blocks * 512 for path in files)
    assert taken <= most_mib << 20


async def test_clients_stay_connected_when_hours_pass(mq: RocketMQServer):
    async with Producer("shop", mq.namesrv_addr, retry_times_when_send_failed=0) as producer:
        await producer.send(Message("Orders", b"before"))
        mq.clock.advance(12 * 3600)
        await producer.send(Message("Orders", b"after"))


# -- faults


async def test_a_code_is_answered_as_often_as_ordered(mq: RocketMQServer):
    mq.faults.answer(ResponseCode.MESSAGE_ILLEGAL, "not today", times=2)
    for _ in range(2):
        with pytest.raises(BrokerResponseError, match="not today"):
            await send(mq, b"refused")
    await send(mq, b"accepted")
    mq.assert_messages("Orders", [b"accepted"])


async def test_a_dropped_answer_leaves_a_stored_message(mq: RocketMQServer):
    mq.faults.drop_answers()
    with pytest.raises(RocketBrokerError):
        await send(mq, b"stored", timeout_s=1.0)
    await mq.eventually(lambda: mq.assert_messages("Orders", [b"stored"]))


async def test_an_ignored_request_leaves_none(mq: RocketMQServer):
    mq.faults.ignore_requests()
    with pytest.raises(RocketBrokerError):
        await send(mq, b"lost", timeout_s=0.1)
    mq.assert_messages("Orders", [])


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_an_answer_is_late_by_the_clock_of_the_server(flush: str):
    async with RocketMQServer({"flushDiskType": flush}) as mq, asyncio.TaskGroup() as group:
        mq.faults.delay_answers(3600)
        sending = group.create_task(send(mq, b"order", timeout_s=60))
        await mq.eventually(lambda: mq.assert_messages("Orders", [b"order"]))
        assert not sending.done()
        mq.flush()
        mq.clock.advance(3600)
        assert len(await sending) == 1


async def test_a_pull_may_be_late_as_well(mq: RocketMQServer):
    [sent] = await send(mq, b"order")
    async with PullConsumer("billing", mq.namesrv_addr) as consumer, asyncio.TaskGroup() as group:
        await consumer.pull(sent.message_queue, 0)
        mq.faults.delay_answers(3600, to=PULLS)
        pulling = group.create_task(consumer.pull(sent.message_queue, 0))
        done, _ = await asyncio.wait([pulling], timeout=0.1)
        assert not done
        mq.clock.advance(3600)
        assert len((await pulling).messages) == 1


async def test_a_connection_is_cut_instead_of_an_answer(mq: RocketMQServer):
    mq.faults.cut_connections()
    async with Producer("shop", mq.namesrv_addr, retry_times_when_send_failed=0) as producer:
        with pytest.raises(RocketBrokerError, match="lost"):
            await producer.send(Message("Orders", b"stored"))
    mq.assert_messages("Orders", [b"stored"])


async def test_all_connections_are_cut(mq: RocketMQServer):
    reader, writer = await asyncio.open_connection(*mq.broker_addr.split(":"))
    async with Producer("shop", mq.namesrv_addr) as producer:
        sent = await producer.send(Message("Orders", b"1"))
        async with PullConsumer("billing", mq.namesrv_addr) as consumer:
            pulling = asyncio.create_task(consumer.pull(sent.message_queue, 1, suspend_timeout_s=20))
            await until(lambda: mq._server.brokers["broker-a"].controller.hold_service.held)
            mq.cut_connections()
            with pytest.raises(RemotingError):
                await pulling
    writer.close()
    assert await reader.read() == b""


async def test_orders_can_be_taken_back(mq: RocketMQServer):
    mq.faults.answer(ResponseCode.MESSAGE_ILLEGAL, times=None)
    with pytest.raises(BrokerResponseError):
        await send(mq, b"refused")
    mq.faults.clear()
    await send(mq, b"accepted")


def test_an_order_for_no_request_is_rejected(mq: RocketMQServer):
    with pytest.raises(ValueError, match="times=0"):
        mq.faults.drop_answers(times=0)


async def test_a_full_disk_rejects_sends_until_it_is_free(mq: RocketMQServer):
    await send(mq, b"1")
    mq.fill_disk()
    with pytest.raises(RocketBrokerError, match="full"):
        await send(mq, b"2")
    mq.free_disk()
    await send(mq, b"3")
    mq.assert_messages("Orders", [b"1", b"3"])


async def test_a_frozen_server_answers_nothing_until_it_is_thawed(mq: RocketMQServer):
    await send(mq, b"1")
    address = mq.namesrv_addr
    mq.freeze()
    with pytest.raises(ServerStateError, match="frozen"):
        mq.messages("Orders")
    async with Producer("shop", address) as producer:
        sending = asyncio.create_task(producer.send(Message("Orders", b"2")))
        done, _ = await asyncio.wait([sending], timeout=0.1)
        assert not done
        mq.thaw()
        await sending
    mq.assert_messages("Orders", [b"1", b"2"])


def test_a_frozen_server_can_be_stopped():
    with RocketMQServer() as mq:
        mq.freeze()


async def test_a_restarted_broker_has_its_messages_and_its_address(mq: RocketMQServer):
    address = mq.broker_addr
    await send(mq, b"1")
    mq.restart_broker()
    assert mq.broker_addr == address
    await send(mq, b"2")
    mq.assert_messages("Orders", [b"1", b"2"])


async def test_a_power_loss_takes_what_was_not_flushed():
    async with RocketMQServer({"flushIntervalCommitLog": "60000"}) as mq:
        await send(mq, b"1")
        mq.flush()
        await send(mq, b"2")
        mq.restart_broker(lose_unflushed=True)
        mq.assert_messages("Orders", [b"1"])
        await send(mq, b"3")
        mq.assert_messages("Orders", [b"1", b"3"])


async def test_a_power_loss_takes_nothing_that_was_synced():
    async with RocketMQServer({"flushDiskType": "SYNC_FLUSH"}) as mq:
        await send(mq, b"1", b"2")
        mq.restart_broker(lose_unflushed=True)
        mq.assert_messages("Orders", [b"1", b"2"])


async def test_a_power_loss_takes_offsets_that_were_not_flushed(mq: RocketMQServer):
    queue = (await send(mq, b"1"))[0].message_queue
    async with PullConsumer("billing", mq.namesrv_addr) as consumer, Producer("shop", mq.namesrv_addr) as producer:
        await producer.send(Message("Orders", b"2"), queue)
        await consumer.commit_offset(queue, 1)
        await mq.eventually(lambda: mq.assert_lag("billing", "Orders", 1))
        mq.flush()
        await consumer.commit_offset(queue, 2)
        await mq.eventually(lambda: mq.assert_lag("billing", "Orders", 0))
        mq.restart_broker(lose_unflushed=True)
    mq.assert_offsets("billing", "Orders", {queue.queue_id: 1})


async def test_a_broker_is_taken_away_and_brought_back():
    async with RocketMQServer(brokers=2) as mq, Producer("shop", mq.namesrv_addr) as producer:
        mq.stop_broker("broker-b")
        for number in range(4):
            sent = await producer.send(Message("Orders", b"%d" % number))
            assert sent.message_queue.broker_name == "broker-a"
        mq.start_broker("broker-b")
        mq.assert_messages("Orders", [b"0", b"1", b"2", b"3"])


def test_an_unknown_broker_is_named(mq: RocketMQServer):
    with pytest.raises(ValueError, match="no broker 'broker-x'; there are broker-a"):
        mq.stop_broker("broker-x")


# -- assertions


async def test_missing_and_unexpected_messages_are_shown(mq: RocketMQServer):
    await send(mq, b"order 1", b"order 3")
    with pytest.raises(AssertionError, match="messages of topic Orders: 2 expected") as failed:
        mq.assert_messages("Orders", [b"order 1", b"order 2"])
    assert "- b'order 2'\n+ b'order 3'  queue" in str(failed.value)


async def test_a_lag_is_shown_by_queue(mq: RocketMQServer):
    sent = (await send(mq, b"1"))[0]
    mq.assert_lag("billing", "Orders", 1)
    async with PullConsumer("billing", mq.namesrv_addr) as consumer:
        await consumer.commit_offset(sent.message_queue, 1)
        await mq.eventually(lambda: mq.assert_lag("billing", "Orders"))
    mq.assert_offsets("billing", "Orders", {sent.message_queue.queue_id: 1})
    assert mq.offsets("billing", "Orders") == {sent.message_queue: 1}
    with pytest.raises(AssertionError, match="committed 1, messages 0 to 1"):
        mq.assert_lag("billing", "Orders", 7)
    with pytest.raises(AssertionError, match="none expected, 1 found"):
        mq.assert_offsets("billing", "Orders", {})


def test_there_are_no_dead_letters_at_first(mq: RocketMQServer):
    mq.assert_dead_letters("billing", [])
    with pytest.raises(AssertionError, match="dead letters of group billing: 1 expected"):
        mq.assert_dead_letters("billing", [b"order"])


def test_a_check_that_never_holds_raises_its_last_error(mq: RocketMQServer):
    with pytest.raises(AssertionError, match="2 expected"):
        mq.wait_until(lambda: mq.assert_messages("Orders", [b"1", b"2"]), within_s=0.02)
    with pytest.raises(AssertionError, match="returned False"):
        mq.wait_until(lambda: False, within_s=0.02)


def test_a_check_is_repeated_until_it_holds(mq: RocketMQServer):
    answers = iter([False, False, True])
    mq.wait_until(lambda: next(answers))


def test_no_port_is_left_open(caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.ERROR), RocketMQServer() as mq:
        host, port = mq.namesrv_addr.split(":")
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) != 0:
                break
    else:
        pytest.fail("the port still accepts connections")
    assert caplog.records == []


async def test_users_have_the_rights_of_their_policies_alone():
    policies = {"shop": {"Topic:Orders": "Pub,Sub"}}
    async with RocketMQServer(users={"shop": "secret-of-shop"}, policies=policies) as mq:
        for _ in range(2):
            mq.create_topic("Orders")
            mq.create_topic("Prices")
            config = ClientConfig(mq.namesrv_addr, credentials=mq.credentials("shop"))
            async with Producer("PG", config, retry_times_when_send_failed=0) as producer:
                await producer.send(Message("Orders", b"mine"))
                with pytest.raises(RocketBrokerError, match="User:shop has no permission to access Topic:Prices"):
                    await producer.send(Message("Prices", b"of others"))
            assert [message.body for message in mq.messages("Orders")] == [b"mine"]
            assert mq.messages("Prices") == []
            with pytest.raises(RocketBrokerError, match="username cannot be null"):
                await send(mq, b"of nobody")
            mq.reset()


def test_users_and_policies_that_are_none_are_named():
    for given, words in (
        ({"users": {"a b": "secret"}}, "not allowed"),
        ({"users": {"admin": "secret"}}, "admin is a user of the server itself"),
        ({"users": {"shop": "secret"}, "policies": {"shop": {"Orders": "Pub"}}}, "Orders"),
        ({"policies": {"shop": {}}}, "there is no user shop"),
    ):
        with pytest.raises(ConfigError, match=words):
            RocketMQServer(**given)


def test_a_server_without_users_has_no_credentials(mq: RocketMQServer):
    with pytest.raises(ServerStateError, match=r"RocketMQServer\(users=\.\.\.\)"):
        mq.credentials("shop")
