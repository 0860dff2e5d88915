"""Transactions, and requests with replies, between our client and official Java clients, in both directions."""

import asyncio

import pytest

from rocketbroker.client import (
    ConsumeFromWhere,
    LocalTransactionState,
    Message,
    Producer,
    PushConsumer,
    ReceivedMessage,
    RequestTimeoutError,
    SendFailedError,
    TransactionProducer,
)
from rocketbroker.codec.message.message_ext import MessageExt
from tests.support.java import Java
from tests.support.java_lines import got, rows
from tests.support.java_process import JavaProcess
from tests.support.our_servers import Cluster, OurServers, wait_serving
from tests.support.waiting import until

pytestmark = [pytest.mark.java, pytest.mark.timeout(400)]

CLIENTS = ["5.5.0", pytest.param("4.9.8", marks=pytest.mark.soak)]
LIMIT_S = 120
TOPIC = "Pair"
COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOWN,
)
EARLY_CHECKS: dict[str, str | int] = {
    "transactionTimeOut": 1500, "transactionCheckInterval": 1000, "transactionCheckMax": 1000,
}  # fmt: skip


def start_cluster(servers: OurServers, topic: str) -> Cluster:
    namesrv = servers.namesrv()
    broker = servers.launch_broker(namesrv.address, None, EARLY_CHECKS)
    wait_serving(broker, namesrv.address)
    cluster = Cluster(namesrv, broker)
    cluster.make_topic(topic)
    return cluster


def number(message: Message | MessageExt) -> int:
    return int(message.properties["n"])


def numbered(n: int) -> Message:
    return Message(TOPIC, b"body %d" % n, properties={"n": str(n)})


def transact(java: Java, cluster: Cluster, client: str, *options: str) -> JavaProcess:
    group = ("topic=Pair", "group=PG_Pair")
    process = java.start("Transact", f"namesrv={cluster.address}", *group, *options, client=client)
    process.wait_for("STARTED")
    return process


async def leave_open(cluster: Cluster, numbers: range) -> None:
    """Begin transactions with our producer, which ends before it knows their outcome."""

    def check(_message: MessageExt) -> LocalTransactionState:
        return UNKNOWN

    async with TransactionProducer("PG_Pair", cluster.address, check=check) as producer:
        for n in numbers:
            await producer.send_in_transaction(numbered(n), lambda _message: UNKNOWN)


async def end_all(cluster: Cluster, numbers: range, consumer: JavaProcess, expected: list[int]) -> list[int]:
    """Run transactions with our producer; return the messages that it was asked for, until the consumer has all."""
    checked: list[int] = []
    outcomes = (COMMIT, ROLLBACK, UNKNOWN)

    def check(message: MessageExt) -> LocalTransactionState:
        checked.append(number(message))
        return ROLLBACK if number(message) % 2 else COMMIT

    def execute(message: Message) -> LocalTransactionState:
        return outcomes[number(message) % 3]

    async with TransactionProducer("PG_Pair", cluster.address, check=check) as producer:
        for n in numbers:
            await producer.send_in_transaction(numbered(n), execute)
        await until(lambda: sorted(each.n for each in got(consumer.text())) == expected)
        await until(lambda: set(checked) >= {1, 3, 5, 305})
    return checked


@pytest.mark.parametrize("client", CLIENTS)
async def test_members_of_a_producer_group_end_each_other_s_transactions(
    java: Java, our_servers: OurServers, client: str
):
    cluster = await asyncio.to_thread(start_cluster, our_servers, TOPIC)
    there = (f"namesrv={cluster.address}", f"topic={TOPIC}", "group=CG_Pair", "persist=200", "heartbeat=500")
    async with asyncio.timeout(LIMIT_S):
        consumer = java.start("Push", *there, client=client)
        consumer.wait_for("QUEUES\t0,1,2,3")

        await leave_open(cluster, range(200, 203))
        sibling = transact(java, cluster, client, "checks=commit", "count=0")
        await until(lambda: sorted(each.n for each in got(consumer.text())) == [200, 201, 202])
        assert {int(row[0]) for row in rows(sibling.text(), "CHECK")} == {200, 201, 202}
        sibling.kill()

        killed = transact(java, cluster, client, "outcomes=unknown", "checks=unknown", "count=6")
        await until(lambda: len(rows(killed.text(), "HALF")) == 6)
        killed.kill()
        # Ours: 300, 303 are committed at once, 301, 304 rolled back, 302 and 305 end as the check says.
        expected = [0, 2, 4, 200, 201, 202, 300, 302, 303]
        checked = await end_all(cluster, range(300, 306), consumer, expected)
        assert set(checked) == {0, 1, 2, 3, 4, 5, 302, 305}
    assert sorted(each.n for each in got(consumer.text())) == expected, "each message once"
    assert our_servers.errors() == []


async def ask(cluster: Cluster, topic: str) -> None:
    async with Producer("PG_Ask", cluster.address) as producer:
        questions = [f"question {n}" for n in range(10)]
        replies = await asyncio.gather(
            *(producer.request(Message(topic, each.encode()), timeout_s=30) for each in questions)
        )
        assert [reply.body.decode() for reply in replies] == [f"re: {each}" for each in questions]
        with pytest.raises(RequestTimeoutError):
            await producer.request(Message(topic, b"silence"), timeout_s=1)


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_java_consumer_replies_to_a_python_producer(java: Java, our_servers: OurServers, client: str):
    cluster = await asyncio.to_thread(start_cluster, our_servers, "Question")
    async with asyncio.timeout(LIMIT_S):
        there = (f"namesrv={cluster.address}", "topic=Question", "group=CG_Answer", "gate=none")
        answerer = java.start("Answer", *there, client=client)
        answerer.wait_for("STARTED")
        await ask(cluster, "Question")
    assert our_servers.errors() == []


@pytest.mark.parametrize("client", CLIENTS)
async def test_a_python_consumer_replies_to_a_java_producer(java: Java, our_servers: OurServers, client: str):
    cluster = await asyncio.to_thread(start_cluster, our_servers, "Question")
    late: asyncio.Future[ReceivedMessage] = asyncio.get_running_loop().create_future()
    producer = Producer("PG_Reply", cluster.address)

    async def answer(message: ReceivedMessage) -> None:
        if message.body == b"late":
            late.set_result(message)
        elif message.body != b"silence":
            await producer.reply(message, b"re: " + message.body)

    consumer = PushConsumer(
        "CG_Reply", cluster.address, handler=answer, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    )
    async with asyncio.timeout(LIMIT_S), producer, consumer:
        await consumer.subscribe("Question")
        asker = java.start("Ask", f"namesrv={cluster.address}", "topic=Question", "count=5", client=client)
        await until(lambda: "LEFT" in asker.text())
        asked = [f"{way} {n}" for way in ("sync", "async") for n in range(5)]
        assert {tuple(row) for row in rows(asker.text(), "ANSWERED")} == {
            (each.split()[0], each, f"re: {each}") for each in asked
        }
        assert len(rows(asker.text(), "TIMEOUT")) == 1
        message = await late
        asker.kill()
        with pytest.raises(SendFailedError, match="push reply message"):
            await producer.reply(message, b"re: late")
    assert our_servers.errors() == []
