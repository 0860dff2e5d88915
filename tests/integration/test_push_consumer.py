"""Push consumers with our own broker: shares, retries, dead letters, order, broadcasting, answers to administrators."""

import asyncio
import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import (
    AdminClient,
    ClientStateError,
    ConsumeFromWhere,
    FlowControl,
    LocalFileOffsetStore,
    Message,
    MessageModel,
    MessageSelector,
    Producer,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SubscriptionError,
    TopicRouteError,
)
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import CMResult, ConsumeMessageDirectlyResult
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.admin import ConsumeMessageDirectlyResultRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.waiting import until


@pytest.fixture
async def server() -> AsyncIterator[DevServer]:
    server = DevServer(0, 0)
    await server.start()
    yield server
    await server.stop()


async def make_topic(server: DevServer, topic: str, queues: int = 4) -> None:
    async with AdminClient(server.namesrv_addr) as admin:
        await admin.create_and_update_topic_config(server.broker_addr, TopicConfig(topic, queues, queues))


async def send(server: DevServer, topic: str, numbers: range, *, queue_id: int | None = None) -> None:
    async with Producer("PG", server.namesrv_addr) as producer:
        queue = None if queue_id is None else MessageQueue(topic, "broker-a", queue_id)
        for number in numbers:
            await producer.send(Message(topic, b"%d" % number, keys="key" if number == 3 else None), queue)


class Bodies:
    """Handler that keeps the numbers of its messages."""

    def __init__(self) -> None:
        self.numbers: list[int] = []

    async def __call__(self, message: ReceivedMessage) -> None:
        self.numbers.append(int(message.body))


async def test_the_first_message_of_a_new_group_and_topic_arrives_at_once(server: DevServer):
    async with (
        asyncio.timeout(18),
        Producer("orders", server.namesrv_addr) as producer,
        PushConsumer("billing", server.namesrv_addr) as consumer,
    ):
        await consumer.subscribe("Orders", "created || paid")
        await producer.send(Message("Orders", b"{}", tags="created", keys="order-7"))
        async for message in consumer:
            assert (message.topic, message.keys, message.tags, message.body) == ("Orders", "order-7", "created", b"{}")
            break


async def test_members_share_the_queues_and_take_over(server: DevServer):
    await make_topic(server, "Share")
    first, second = Bodies(), Bodies()
    async with asyncio.timeout(90), PushConsumer("CG", server.namesrv_addr, handler=first) as consumer:
        await consumer.subscribe("Share")
        assert [queue.queue_id for queue in consumer.queues if queue.topic == "Share"] == [0, 1, 2, 3]
        async with PushConsumer("CG", server.namesrv_addr, handler=second) as other:
            await other.subscribe("Share")
            await until(lambda: len(consumer.queues) + len(other.queues) == 5)
            assert len([queue for queue in other.queues if queue.topic == "Share"]) == 2
            await send(server, "Share", range(100))
            await until(lambda: len(first.numbers) + len(second.numbers) >= 100)
            assert first.numbers
            assert second.numbers
        await until(lambda: len(consumer.queues) == 5)
        await send(server, "Share", range(100, 200))
        await until(lambda: len(first.numbers) + len(second.numbers) >= 200)
    assert sorted(first.numbers + second.numbers) == list(range(200)), "each message once"


async def test_a_closed_consumer_has_committed_what_was_consumed(server: DevServer):
    await send(server, "Commit", range(10), queue_id=0)
    async with PushConsumer("CG", server.namesrv_addr) as consumer:
        await consumer.subscribe("Commit")
        async for message in consumer:
            if message.body == b"4":
                break
    again = Bodies()
    async with asyncio.timeout(60), PushConsumer("CG", server.namesrv_addr, handler=again) as consumer:
        await consumer.subscribe("Commit")
        await until(lambda: len(again.numbers) >= 5)
    assert sorted(again.numbers) == list(range(5, 10))


async def test_a_message_whose_handler_raises_comes_again_and_becomes_a_dead_letter(
    server: DevServer, caplog: pytest.LogCaptureFixture
):
    seen: list[tuple[str, int, bytes]] = []

    async def fail(message: ReceivedMessage) -> None:
        seen.append((message.topic, message.reconsume_times, message.body))
        if message.reconsume_times == 0:
            await message.retry_later(delay_level=1)
        else:
            raise ValueError("no such order")

    async with (
        asyncio.timeout(90),
        PushConsumer("CG", server.namesrv_addr, handler=fail, max_reconsume_times=1) as consumer,
        PullConsumer("Reader", server.namesrv_addr) as reader,
    ):
        await consumer.subscribe("Retry")
        await send(server, "Retry", range(1))
        async for dead in reader.iterate("%DLQ%CG"):
            assert (dead.body, dead.reconsume_times) == (b"0", 2)
            break
    assert seen == [("Retry", 0, b"0"), ("Retry", 1, b"0")]
    assert "the handler failed" in caplog.text


async def test_an_exception_that_leaves_the_consumer_gives_the_message_back(server: DevServer):
    async def consume() -> None:
        async with PushConsumer("CG", server.namesrv_addr) as consumer:
            await consumer.subscribe("Raise")
            await send(server, "Raise", range(1))
            async for message in consumer:
                raise ValueError(message.body)

    with pytest.raises(ValueError, match="0"):
        await consume()
    async with asyncio.timeout(90), PullConsumer("Reader", server.namesrv_addr) as reader:
        queues = await reader.fetch_subscribe_queues("%RETRY%CG")
        scheduled = await reader.fetch_subscribe_queues("SCHEDULE_TOPIC_XXXX")
        assert queues
        assert await reader.max_offset(scheduled[2]) == 1, "the retry waits at level 3"


async def test_a_sync_handler_runs_in_threads(server: DevServer):
    bodies: list[bytes] = []

    def handle(message: ReceivedMessage) -> None:
        bodies.append(message.body)

    async with asyncio.timeout(60), PushConsumer("CG", server.namesrv_addr, handler=handle) as consumer:
        await consumer.subscribe("Sync")
        await send(server, "Sync", range(20))
        await until(lambda: len(bodies) == 20)


async def test_an_orderly_consumer_keeps_the_order_over_failures(server: DevServer):
    await make_topic(server, "Order", 2)
    seen: dict[int, list[int]] = {0: [], 1: []}
    failed: set[int] = set()

    async def handle(message: ReceivedMessage) -> None:
        number = int(message.body)
        if number % 5 == 0 and number not in failed:
            failed.add(number)
            raise ValueError(number)
        seen[message.queue.queue_id].append(number)

    async with (
        asyncio.timeout(90),
        PushConsumer("CG", server.namesrv_addr, handler=handle, orderly=True, suspend_current_queue_s=0.05) as consumer,
    ):
        await consumer.subscribe("Order")
        await send(server, "Order", range(20), queue_id=0)
        await send(server, "Order", range(100, 120), queue_id=1)
        await until(lambda: len(seen[0]) + len(seen[1]) == 40)
    assert seen == {0: list(range(20)), 1: list(range(100, 120))}


async def test_orderly_members_never_consume_a_queue_at_the_same_time(server: DevServer):
    await make_topic(server, "Hand", 2)
    running: set[int] = set()
    at_the_same_time: list[ReceivedMessage] = []  # a handler that raised would only be called again
    numbers: dict[int, list[int]] = {0: [], 1: []}

    async def handle(message: ReceivedMessage) -> None:
        queue_id = message.queue.queue_id
        if queue_id in running:
            at_the_same_time.append(message)
        running.add(queue_id)
        await asyncio.sleep(0.02)
        running.discard(queue_id)
        numbers[queue_id].append(int(message.body))

    async with asyncio.timeout(90), PushConsumer("CG", server.namesrv_addr, handler=handle, orderly=True) as first:
        await first.subscribe("Hand")
        for queue_id in range(2):
            await send(server, "Hand", range(60), queue_id=queue_id)
        for _ in range(2):
            async with PushConsumer("CG", server.namesrv_addr, handler=handle, orderly=True) as second:
                await second.subscribe("Hand")
                await until(lambda: any(queue.topic == "Hand" for queue in second.queues))
        await until(lambda: len(numbers[0]) >= 60 and len(numbers[1]) >= 60)
    assert at_the_same_time == []
    assert {queue_id: list(dict.fromkeys(each)) for queue_id, each in numbers.items()} == {
        0: list(range(60)),
        1: list(range(60)),
    }


async def test_each_broadcasting_consumer_gets_every_message_and_continues_from_its_file(
    server: DevServer, tmp_path: Path
):
    handlers = [Bodies(), Bodies()]

    def consumer(number: int) -> PushConsumer:
        return PushConsumer(
            "CG",
            server.namesrv_addr,
            handler=handlers[number],
            message_model=MessageModel.BROADCASTING,
            offset_store=LocalFileOffsetStore(tmp_path / f"{number}.json"),
        )

    await make_topic(server, "Broad")
    async with asyncio.timeout(90):
        async with consumer(0) as first, consumer(1) as second:
            await first.subscribe("Broad")
            await second.subscribe("Broad")
            await send(server, "Broad", range(20))
            await until(lambda: all(len(each.numbers) == 20 for each in handlers))
        await send(server, "Broad", range(20, 40))
        async with consumer(0) as first:
            await first.subscribe("Broad")
            await until(lambda: len(handlers[0].numbers) == 40)
    assert sorted(handlers[0].numbers) == list(range(40))
    assert sorted(handlers[1].numbers) == list(range(20))


async def test_a_new_group_may_start_at_a_time_or_at_the_first_message(server: DevServer):
    await send(server, "Where", range(5), queue_id=0)
    first = Bodies()
    async with (
        asyncio.timeout(60),
        PushConsumer(
            "First",
            server.namesrv_addr,
            handler=first,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        ) as consumer,
    ):
        await consumer.subscribe("Where")
        await until(lambda: len(first.numbers) == 5)


async def test_a_topic_may_be_required(server: DevServer):
    async with PushConsumer("CG", server.namesrv_addr, require_topic=True) as consumer:
        with pytest.raises(TopicRouteError, match="Nowhere"):
            await consumer.subscribe("Nowhere")


async def test_consumers_of_one_group_must_agree(server: DevServer):
    async with (
        PushConsumer("CG", server.namesrv_addr) as first,
        PushConsumer("CG", server.namesrv_addr) as second,
    ):
        await first.subscribe("Agree", "a")
        with pytest.raises(SubscriptionError, match="already consumes topic Agree in this process by TAG 'a'"):
            await second.subscribe("Agree", "b")


async def test_a_closed_consumer_cannot_be_used(server: DevServer):
    consumer = PushConsumer("CG", server.namesrv_addr)
    with pytest.raises(ClientStateError, match="is not started"):
        aiter(consumer)
    await consumer.start()
    await consumer.close()
    with pytest.raises(ClientStateError, match="is not started, or is closed"):
        await consumer.subscribe("T")
    with pytest.raises(ClientStateError, match="was closed; make a new PushConsumer"):
        await consumer.start()


async def test_administrators_see_and_move_a_consumer(server: DevServer, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO)
    bodies = Bodies()
    await make_topic(server, "Admin", 1)
    async with (
        asyncio.timeout(90),
        AdminClient(server.namesrv_addr) as admin,
        PushConsumer("CG", server.namesrv_addr, handler=bodies) as consumer,
    ):
        await consumer.subscribe("Admin")
        await send(server, "Admin", range(5))
        await until(lambda: len(bodies.numbers) == 5)
        (connection,) = (await admin.examine_consumer_connection_info("CG")).connection_set
        info = await admin.get_consumer_running_info("CG", connection.client_id)
        assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert "Admin" in info.status_table
        queue = MessageQueue("Admin", "broker-a", 0)
        assert queue in await admin.assigned_queues("CG", connection.client_id)
        assert await admin.get_consume_status("Admin", "CG") == {connection.client_id: {queue: 5}}
        remoting = RemotingClient()
        record = await admin.find_message("Admin", (await admin.query_message("Admin", "key"))[0].offset_msg_id)
        header = ConsumeMessageDirectlyResultRequestHeader("CG", connection.client_id, record.offset_msg_id)
        answer = await remoting.invoke(server.broker_addr, request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header))
        await remoting.stop()
        assert ConsumeMessageDirectlyResult.decode(answer.body).consume_result is CMResult.CR_SUCCESS
        assert bodies.numbers.pop() == 3
        await admin.reset_offset_by_queue_id(server.broker_addr, "CG", "Admin", 0, offset=0)
        await until(lambda: len(bodies.numbers) == 10)
    assert bodies.numbers == [0, 1, 2, 3, 4] * 2


async def test_the_memory_of_all_queues_is_bounded(server: DevServer):
    await make_topic(server, "Memory")
    async with Producer("PG", server.namesrv_addr) as producer:
        for queue_id in range(4):
            for _ in range(10):
                batch = [Message("Memory", bytes(1000)) for _ in range(50)]
                await producer.send_batch(batch, MessageQueue("Memory", "broker-a", queue_id))
    limits = FlowControl(bytes_in_all=100_000)
    async with asyncio.timeout(90), PushConsumer("CG", server.namesrv_addr, flow_control=limits) as consumer:
        held = consumer._queues.table.queues
        await consumer.subscribe("Memory")
        number = 0
        async for _ in consumer:
            number += 1
            # Each queue may exceed the limit by one answer of 32 messages.
            assert sum(queue.bytes for queue in held.values()) <= 100_000 + 4 * 32 * 1100
            if number == 2000:
                break


async def test_a_filter_that_the_broker_cannot_apply_is_refused_at_once(server: DevServer):
    await make_topic(server, "Sql")
    async with PushConsumer("CG", server.namesrv_addr) as consumer:
        with pytest.raises(BrokerResponseError, match="enablePropertyFilter"):
            await consumer.subscribe("Sql", MessageSelector.by_sql("a > 5"))
        await consumer.subscribe("Sql", "a || b")
        await consumer.unsubscribe("Sql")
        assert not [queue for queue in consumer.queues if queue.topic == "Sql"]
