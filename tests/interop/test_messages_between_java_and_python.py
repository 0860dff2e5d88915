"""Messages of a Python producer reach a Java consumer as they were sent, and the other way round.

Single messages, batches, messages for later and compressed ones, with tags, keys, properties, flags and order.
"""

import asyncio
import zlib
from collections import defaultdict

import pytest

from rocketbroker.client import (
    CompressionType,
    ConsumeFromWhere,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
)
from rocketbroker.codec.message.message_ext import MessageQueue
from tests.support.java import Java
from tests.support.java_lines import Got, body_of, got, sent
from tests.support.our_servers import Cluster
from tests.support.waiting import until

pytestmark = [pytest.mark.soak, pytest.mark.java, pytest.mark.timeout(300)]

TAGS = "ABC"
TOPIC = "Between"
LIMIT_S = 120
SINGLES, BATCHED, DELAYED, IN_ORDER = range(100), range(100, 200), range(200, 203), range(203, 243)
ALL = range(IN_ORDER.stop)


def message_of(n: int, delay_time_level: int = 0) -> Message:
    """Return message n as Messages.java makes it; the body of every hundredth is compressed."""
    return Message(
        TOPIC,
        body_of(n),
        tags=TAGS[n % 3],
        keys=(f"key{n}", "common"),
        properties={"n": str(n), "text": f"é世 {n}"},
        flag=n,
        delay_time_level=delay_time_level,
    )


async def produce(address: str, compression: CompressionType) -> dict[int, str]:
    """Send all; return the unique ids by number."""
    ids: dict[int, str] = {}
    async with Producer("PG", address, compress_type=compression, send_timeout_s=LIMIT_S) as producer:
        for n in SINGLES:
            ids[n] = (await producer.send(message_of(n))).msg_id
        (result,) = await producer.send_batch([message_of(n) for n in BATCHED])
        ids |= dict(zip(BATCHED, result.msg_id.split(","), strict=True))
        for n in DELAYED:
            ids[n] = (await producer.send(message_of(n, delay_time_level=1))).msg_id
        queue: MessageQueue = (await producer.fetch_publish_queues(TOPIC))[0]
        for n in IN_ORDER:
            ids[n] = (await producer.send(message_of(n), queue)).msg_id
    return ids


def check_row(row: Got, n: int, msg_id: str) -> None:
    assert (row.tags, row.keys, row.text, row.flag) == (TAGS[n % 3], f"key{n} common", f"é世 {n}", n)
    assert (row.body_crc, row.msg_id, row.topic) == (zlib.crc32(body_of(n)), msg_id, TOPIC)
    assert n not in DELAYED or row.stored - row.born >= 1000


@pytest.mark.parametrize(
    ("client", "compression"),
    [("5.5.0", CompressionType.LZ4), ("5.5.0", CompressionType.ZSTD), ("4.9.8", CompressionType.ZLIB)],
)
async def test_a_java_consumer_gets_what_a_python_producer_sends(
    java: Java, cluster: Cluster, client: str, compression: CompressionType
):
    await asyncio.to_thread(cluster.make_topic, TOPIC)
    options = (f"namesrv={cluster.address}", f"topic={TOPIC}", "group=CG", "listener=orderly")
    async with asyncio.timeout(LIMIT_S):
        consumer = java.start("Push", *options, client=client)
        ids = await produce(cluster.address, compression)
        await until(lambda: {row.n for row in got(consumer.text())} >= set(ALL), LIMIT_S)
        consumer.kill()
    found = {row.n: row for row in got(consumer.text())}
    assert sorted(found) == list(ALL)
    for n, row in found.items():
        check_row(row, n, ids[n])
    offsets = [found[n].queue_offset for n in IN_ORDER]
    assert offsets == sorted(offsets)
    taken = list(dict.fromkeys(row.n for row in got(consumer.text()) if row.n in IN_ORDER))
    assert taken == list(IN_ORDER), "an orderly consumer takes them in order"


@pytest.mark.parametrize("client", ["5.5.0", "4.9.8"])
async def test_a_python_consumer_gets_what_a_java_producer_sends(java: Java, cluster: Cluster, client: str):
    await asyncio.to_thread(cluster.make_topic, TOPIC)
    messages: dict[int, ReceivedMessage] = {}
    order: dict[int, list[int]] = defaultdict(list)

    async def handle(message: ReceivedMessage) -> None:
        number = int(message.properties["n"])
        messages[number] = message
        order[message.queue.queue_id].append(number)

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer("CG", cluster.address, handler=handle, orderly=True, consume_from_where=first)
    there = (f"namesrv={cluster.address}", f"topic={TOPIC}")
    async with asyncio.timeout(LIMIT_S), consumer:
        await consumer.subscribe(TOPIC)
        plan = "plan=sync:100:1,batch:64:1,async:36:1,selector:40:1"
        done = await asyncio.to_thread(java.run, "Produce", *there, plan, client=client)
        late = await asyncio.to_thread(
            java.run, "Produce", *there, "plan=sync:3:1", "first=240", "delayLevel=1", client=client
        )
        ids = {each.n: each.msg_id for each in (*sent(done.stdout), *sent(late.stdout))}
        await until(lambda: len(messages) == 243, LIMIT_S)
    assert sorted(ids) == sorted(messages) == list(range(243))
    for n, message in messages.items():
        assert (message.tags, message.keys, message.properties["text"]) == (TAGS[n % 3], f"key{n} common", f"é世 {n}")
        assert (message.body, message.message_ext.flag, message.msg_id) == (body_of(n), n, ids[n])
        assert n < 240 or message.store_timestamp - message.born_timestamp >= 1000
    for queue_id in range(4):
        assert [n for n in order[queue_id] if 200 <= n < 240] == list(range(200 + queue_id, 240, 4))
