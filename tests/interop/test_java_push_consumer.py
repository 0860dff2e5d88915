"""One group with a Java and a Python member: shares, take-over, retries and order, on our broker and on Apache's."""

import asyncio

import pytest

from rocketbroker.client import Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageQueue
from tests.support.java import Java
from tests.support.java_lines import got, last_queues
from tests.support.java_process import JavaProcess, JavaServer
from tests.support.our_servers import Cluster, make_topic
from tests.support.waiting import until

pytestmark = pytest.mark.java

# The Java client asks for its share by itself every 20 s; with this it does so only when the broker tells it to.
ONLY_WHEN_TOLD = {"rocketmq.client.rebalance.waitInterval": "300000"}


class Pair:
    """A Java member as a process, and what the Python one has got."""

    def __init__(self, java: Java, namesrv: str, topic: str, *options: str) -> None:
        self.namesrv = namesrv
        self.topic = topic
        self.group = f"CG_{topic}"
        given = (f"namesrv={namesrv}", f"topic={topic}", f"group={self.group}", "persist=500", *options)
        self.java: JavaProcess = java.start("Push", *given, properties=ONLY_WHEN_TOLD)
        self.ours: list[int] = []
        self.retried: list[int] = []

    async def handle(self, message: ReceivedMessage) -> None:
        self.ours.append(int(message.properties["n"]))

    async def fail_once(self, message: ReceivedMessage) -> None:
        number = int(message.properties["n"])
        if message.reconsume_times:
            self.retried.append(number)
        else:
            self.ours.append(number)
            await message.retry_later(delay_level=1)

    @property
    def theirs(self) -> list[int]:
        return [each.n for each in got(self.java.text())]

    def share(self, consumer: PushConsumer) -> list[int]:
        return [queue.queue_id for queue in consumer.queues if queue.topic == self.topic]

    async def until_java_has(self, number: int) -> None:
        await until(lambda: len(last_queues(self.java.text()) or []) == number)

    async def send(self, numbers: range, queues: int = 4) -> None:
        async with Producer("PG", self.namesrv) as producer:
            broker = (await producer.fetch_publish_queues(self.topic))[0].broker_name
            for number in numbers:
                queue = MessageQueue(self.topic, broker, number % queues)
                await producer.send(Message(self.topic, b"body", properties={"n": str(number)}), queue)


async def share_and_take_over(pair: Pair) -> None:
    await pair.until_java_has(4)
    async with PushConsumer(pair.group, pair.namesrv, handler=pair.handle) as ours:
        await ours.subscribe(pair.topic)
        await until(lambda: len(pair.share(ours)) == 2)
        await pair.until_java_has(2)
        assert sorted(pair.share(ours) + (last_queues(pair.java.text()) or [])) == [0, 1, 2, 3]
        await pair.send(range(200))
        await until(lambda: len(pair.ours) + len(pair.theirs) >= 200)
    assert len(pair.ours) == 100
    await pair.until_java_has(4)
    await pair.send(range(200, 300))
    await until(lambda: len(pair.theirs) >= 200)
    assert sorted(pair.ours + pair.theirs) == list(range(300)), "each message once"


async def test_a_java_and_a_python_member_share_the_queues(java: Java, cluster: Cluster):
    await asyncio.to_thread(cluster.make_topic, "Share")
    async with asyncio.timeout(120):
        await share_and_take_over(Pair(java, cluster.address, "Share"))


@pytest.mark.soak
async def test_a_java_and_a_python_member_share_the_queues_of_apaches_broker(
    java: Java, java_namesrv: JavaServer, java_broker: JavaServer
):
    await asyncio.to_thread(make_topic, java_broker.address, java_namesrv.address, "Share", 4)
    async with asyncio.timeout(120):
        await share_and_take_over(Pair(java, java_namesrv.address, "Share"))


async def test_messages_given_back_by_the_python_member_come_again_to_either(java: Java, cluster: Cluster):
    await asyncio.to_thread(cluster.make_topic, "Retry")
    pair = Pair(java, cluster.address, "Retry", "pollNameServer=1000")
    await pair.until_java_has(4)
    async with (
        asyncio.timeout(120),
        PushConsumer(pair.group, pair.namesrv, handler=pair.fail_once) as ours,
    ):
        await ours.subscribe("Retry")
        await until(lambda: len(pair.share(ours)) == 2)
        await pair.until_java_has(2)
        await pair.send(range(40))
        await until(lambda: len(pair.theirs) + len(pair.retried) >= 40)
    assert len(pair.ours) == 20
    assert sorted(pair.theirs + pair.retried) == list(range(40))


async def test_an_orderly_group_of_both_hands_its_locks_over(java: Java, cluster: Cluster):
    await asyncio.to_thread(cluster.make_topic, "Order", 2)
    pair = Pair(java, cluster.address, "Order", "listener=orderly")
    await pair.until_java_has(2)
    await pair.send(range(100), 2)
    async with (
        asyncio.timeout(120),
        PushConsumer(pair.group, pair.namesrv, handler=pair.handle, orderly=True) as ours,
    ):
        await ours.subscribe("Order")
        await until(lambda: len(pair.share(ours)) == 1)
        await pair.send(range(100, 200), 2)
        await until(lambda: set(pair.ours) | set(pair.theirs) == set(range(200)))
        mine = list(dict.fromkeys(each for each in pair.ours if each >= 100))
    assert mine == sorted(mine)
    assert len({number % 2 for number in mine}) == 1
