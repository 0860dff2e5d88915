"""Official Java transaction producers against our broker: commit, rollback, check-back, producer and broker killed."""

import asyncio
import re
import struct
import zlib
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.headers.message import ResumeCheckHalfMessageRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support import log_messages
from tests.support.clocked_broker import clocked_broker
from tests.support.java import Java
from tests.support.java_lines import Got, body_of, check_content, got, rows
from tests.support.java_process import JavaProcess, JavaServer
from tests.support.our_servers import Cluster, OurServers, make_topic, wait_serving
from tests.support.store_audit import check_store
from tests.support.waiting import wait_until

pytestmark = pytest.mark.java

TOPIC = "Transact"
HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
# Short, so that a test need not wait long. A client that is slow to answer is asked again, as often as it takes.
SHORT: dict[str, str | int] = {
    "transactionTimeOut": 1500, "transactionCheckInterval": 1000, "transactionCheckMax": 1000,
    "transactionOpBatchInterval": 200, "flushConsumerOffsetInterval": 100, "flushCommitLogLeastPages": 0,
}  # fmt: skip


class Check(NamedTuple):
    """One question that a producer was asked."""

    n: int
    msg_id: str
    times: int


def start_cluster(servers: OurServers, **settings: str | int) -> Cluster:
    namesrv = servers.namesrv()
    broker = servers.launch_broker(namesrv.address, None, SHORT | settings)
    wait_serving(broker, namesrv.address)
    cluster = Cluster(namesrv, broker)
    cluster.make_topic(TOPIC)
    return cluster


def transact(java: Java, cluster: Cluster, *options: str, client: str = "5.5.0") -> JavaProcess:
    return transact_at(java, cluster.address, *options, client=client)


def transact_at(java: Java, namesrv: str, *options: str, client: str = "5.5.0") -> JavaProcess:
    process = java.start("Transact", f"namesrv={namesrv}", f"topic={TOPIC}", *options, client=client)
    process.wait_for("STARTED")
    return process


def consume(java: Java, cluster: Cluster) -> JavaProcess:
    consumer = java.start(
        "Push", f"namesrv={cluster.address}", f"topic={TOPIC}", "group=CG_Transact", "persist=200", "heartbeat=500"
    )
    consumer.wait_for("QUEUES\t0,1,2,3")
    return consumer


def checks(producer: JavaProcess) -> list[Check]:
    """Return the checks it was asked for, each with the content and topic of its message."""
    found = []
    for n, msg_id, times, topic, crc in rows(producer.text(), "CHECK"):
        assert (topic, int(crc)) == (TOPIC, zlib.crc32(body_of(int(n))))
        found.append(Check(int(n), msg_id, int(times)))
    return found


def halves(producer: JavaProcess) -> dict[int, str]:
    """Number -> id of what it sent."""
    lines = rows(producer.text(), "HALF")
    assert {status for _, _, status, _ in lines} <= {"SEND_OK"}
    return {int(n): msg_id for n, msg_id, _, _ in lines}


def entries(store: Path, topic: str) -> int:
    """Return the number of messages in the queues of a topic."""
    files = (store / "consumequeue" / topic).rglob("0*")
    return sum(
        size > 0 for file in files if file.is_file() for _, size, _ in struct.iter_unpack(">qiq", file.read_bytes())
    )


def all_ended(store: Path) -> bool:
    """Return true if the broker has dealt with all half messages, by what it has written."""
    try:
        offsets = (store / "config" / "consumerOffset.json").read_text()
    except FileNotFoundError:
        return False  # Apache's broker removes it before the new one has its name
    position = re.search(rf'"{HALF_TOPIC}@CID_RMQ_SYS_TRANS":{{\s*0:(\d+)', offsets)
    return position is not None and int(position[1]) == entries(store, HALF_TOPIC)


def messages_of(store: Path, topic: str) -> list[MessageExt]:
    """All messages of a topic, as they are in the log."""
    logs = [path.read_bytes() for path in sorted((store / "commitlog").iterdir())]
    return [each for log in logs for each in log_messages.messages_of(log).values() if each.topic == topic]


def ended(store: Path) -> list[int]:
    """The half messages that op messages end, by their queue offsets."""
    ops = messages_of(store, OP_TOPIC)
    return sorted(int(offset) for op in ops for offset in op.body.decode().split(",") if offset)


def numbers(messages: list[Got]) -> dict[int, int]:
    return dict(Counter(each.n for each in messages))


@pytest.mark.proves("Transactions", "half messages wait unseen")
@pytest.mark.proves("Transactions", "commit, rollback and unknown; checked until the answer is clear")
@pytest.mark.parametrize("client", ["5.5.0", "4.9.8"])
def test_consumers_get_only_committed_messages(java: Java, our_servers: OurServers, client: str):
    cluster = start_cluster(our_servers)
    consumer = consume(java, cluster)
    producer = transact(
        java,
        cluster,
        "count=60",
        "threads=4",
        "outcomes=commit,rollback,unknown",
        "checks=unknown,commit",
        client=client,
    )
    producer.wait_for("SENT")
    first = {n for n in range(60) if n % 3 == 0}
    wait_until(lambda: set(numbers(got(consumer.text()))) >= first, "what was committed at once is there")
    expected = {n: 1 for n in range(60) if n % 3 != 1}
    wait_until(lambda: set(numbers(got(consumer.text()))) >= set(expected), "what was committed when asked is there")
    wait_until(lambda: all_ended(cluster.broker.store), "all transactions are ended")

    messages = got(consumer.text())
    check_content(messages)
    assert numbers(messages) == expected
    sent = halves(producer)
    assert {each.n: each.msg_id for each in messages} == {n: sent[n] for n in expected}
    asked = checks(producer)
    unknown = [n for n in range(60) if n % 3 == 2]
    assert {(each.n, each.msg_id) for each in asked} == {(n, sent[n]) for n in unknown}, "those alone"
    assert {(each.n, each.times) for each in asked} >= {(n, times) for n in unknown for times in (1, 2)}
    late = {each.n: each.stored - each.born for each in messages}
    assert min(late[n] for n in unknown) >= 1500, "nobody is asked before transactionTimeOut"
    cluster.broker.stop()
    assert entries(cluster.broker.store, TOPIC) == len(expected)
    check_store(cluster.broker.store)
    assert our_servers.errors() == []


@pytest.mark.proves(
    "Transactions",
    "check-back to any live producer of the group, a sibling when the first was killed; "
    "`transactionTimeOut`, `transactionCheckMax`, the message is in TRANS_CHECK_MAX_TIME_TOPIC then, and "
    "can be taken up again",
)
def test_a_sibling_answers_for_a_producer_that_was_killed(java: Java, our_servers: OurServers):
    cluster = start_cluster(our_servers)
    consumer = consume(java, cluster)
    sibling = transact(java, cluster, "checks=commit")
    stranger = transact(java, cluster, "group=PG_Other", "checks=rollback")
    first = transact(java, cluster, "count=40", "outcomes=unknown", "checks=unknown")
    first.wait_for("SENT")
    sent = halves(first)
    first.kill()
    wait_until(lambda: set(numbers(got(consumer.text()))) >= set(range(40)), "all are committed")
    wait_until(lambda: all_ended(cluster.broker.store), "all transactions are ended")

    messages = got(consumer.text())
    check_content(messages)
    assert numbers(messages) == dict.fromkeys(range(40), 1)
    assert {each.n: each.msg_id for each in checks(sibling)} == sent
    assert checks(stranger) == []
    cluster.broker.stop()
    assert entries(cluster.broker.store, TOPIC) == 40
    assert our_servers.errors() == []


@pytest.mark.proves("Transactions", "a broker killed between half message and commit; what is committed comes once")
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", pytest.param("SYNC_FLUSH", marks=pytest.mark.soak)])
def test_a_broker_killed_amid_transactions_checks_them(java: Java, our_servers: OurServers, tmp_path: Path, flush: str):
    """Some are committed and no op message says so yet; of others there is the first half alone."""
    settings: dict[str, str | int] = {"flushDiskType": flush, "transactionOpBatchInterval": 600_000}
    cluster = start_cluster(our_servers, **settings)
    consumer = consume(java, cluster)
    gate = tmp_path / "gate"
    producer = transact(java, cluster, "count=30", "threads=10", "gateFrom=20", f"gate={gate}")
    wait_until(lambda: len(rows(producer.text(), "LOCAL")) == 30, "ten are amid their local transaction")
    early = set(range(20))
    wait_until(lambda: set(numbers(got(consumer.text()))) >= early, "what was committed is there")
    cluster.broker.kill()
    gate.touch()
    producer.wait_for("SENT")
    store, port = cluster.broker.store, cluster.broker.port
    assert entries(store, OP_TOPIC) == 0
    broker = our_servers.launch_broker(cluster.address, store, SHORT | settings, port)
    wait_serving(broker, cluster.address)
    wait_until(lambda: set(numbers(got(consumer.text()))) == set(range(30)), "all are committed")
    wait_until(lambda: all_ended(store), "all transactions are ended")

    asked = {each.n for each in checks(producer)}
    assert asked == set(range(20, 30)), "those alone: what was committed before the kill is known"
    broker.stop()
    assert entries(store, TOPIC) == 30, "each once"
    check_content(got(consumer.text()))
    check_store(store)


@pytest.mark.proves(
    "Transactions",
    "half messages, op messages and progress in RocketMQ's format: what begins under one broker is ended "
    "under the other",
)
# Each run takes over plain and popped messages (test_store_take_over.py); formats of transactions change rarely.
@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("first", ["ours", "apache"])
def test_a_transaction_begun_under_one_broker_ends_under_the_other(
    java: Java, our_servers: OurServers, tmp_path: Path, first: str
):
    namesrv = our_servers.namesrv().address
    store = tmp_path / "store"
    sizes: dict[str, str | int] = {"mappedFileSizeCommitLog": 262_144, "mappedFileSizeConsumeQueue": 6_000}
    sizes |= {"maxHashSlotNum": 500, "maxIndexNum": 1_000}

    def ours(settings: dict[str, str | int]) -> JavaServer:
        broker = our_servers.launch_broker(namesrv, store, SHORT | sizes | settings)
        wait_serving(broker, namesrv)
        return broker

    def apache(settings: dict[str, str | int]) -> JavaServer:
        return java.broker(namesrv, store, **{**SHORT, **sizes, **settings})

    begin, end = (ours, apache) if first == "ours" else (apache, ours)
    broker = begin({"transactionCheckInterval": 600_000})
    make_topic(broker.address, namesrv, TOPIC)
    producer = transact_at(java, namesrv, "count=30", "outcomes=commit,rollback,unknown")
    producer.wait_for("SENT")
    wait_until(lambda: len(ended(store)) == 20, "what has an outcome is noted")
    sent = halves(producer)
    producer.kill()
    broker.stop()
    assert entries(store, TOPIC) == 10

    broker = end({})
    sibling = transact_at(java, namesrv, "checks=commit")
    wait_until(lambda: entries(store, TOPIC) == 20, "what was open is committed")
    wait_until(lambda: all_ended(store), "all transactions are ended")
    unknown = {n: sent[n] for n in range(30) if n % 3 == 2}
    assert {each.n: each.msg_id for each in checks(sibling)} == unknown
    consumer = java.start("Push", f"namesrv={namesrv}", f"topic={TOPIC}", "group=CG_Transact", "stopAfter=20")
    consumer.wait_for("DONE")
    messages = got(consumer.text())
    # The copies that Apache's broker makes lose the flag.
    check_content([each._replace(flag=each.n) for each in messages])
    assert numbers(messages) == {n: 1 for n in range(30) if n % 3 != 1}
    broker.stop()
    assert entries(store, TOPIC) == 20
    check_store(store)


def asked_for(producer: JavaProcess, times: int) -> bool:
    return len(checks(producer)) == times


async def resume(cluster: Cluster, ids: list[str]) -> list[str]:
    """Request new checks of abandoned transactions; return the reason of each rejection, else an empty text."""
    commands = [
        request(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(TOPIC, each)) for each in ids
    ]
    async with AdminClient(cluster.address) as admin:
        return [(await admin._invoke(cluster.broker.address, each)).remark or "" for each in commands]


@pytest.mark.proves(
    "Transactions",
    "check-back to any live producer of the group, a sibling when the first was killed; "
    "`transactionTimeOut`, `transactionCheckMax`, the message is in TRANS_CHECK_MAX_TIME_TOPIC then, and "
    "can be taken up again",
)
def test_an_unknown_transaction_is_discarded_after_15_checks_and_can_be_resumed(java: Java, our_servers: OurServers):
    """With all times as they are by default, on a clock that is advanced."""
    namesrv = our_servers.namesrv()
    broker = clocked_broker(our_servers, namesrv.address, channelExpiredTimeout=86_400_000)
    cluster = Cluster(namesrv, broker)
    cluster.make_topic(TOPIC)
    unsure = transact(java, cluster, "count=5", "outcomes=unknown", "checks=unknown")
    unsure.wait_for("SENT")
    for times in range(1, 16):
        assert len(checks(unsure)) == 5 * (times - 1)
        broker.set_clock("advance 30")
        wait_until(partial(asked_for, unsure, 5 * times), f"all are asked for, time {times}")
    assert entries(broker.store, CHECK_MAX_TOPIC) == 0
    broker.set_clock("advance 30")
    wait_until(lambda: entries(broker.store, CHECK_MAX_TOPIC) == 5, "they are given up")
    assert Counter(checks(unsure)) == Counter(
        Check(n, msg_id, times) for n, msg_id in halves(unsure).items() for times in range(1, 16)
    )
    stored = [each.store_timestamp for each in messages_of(broker.store, HALF_TOPIC) if each.get_property("n") == "0"]
    assert len(stored) == 16
    assert stored[1] - stored[0] > 6_000, "transactionTimeOut"
    assert min(later - one for one, later in pairwise(stored[1:])) >= 30_000
    given_up = java.start("Push", f"namesrv={cluster.address}", f"topic={CHECK_MAX_TOPIC}", "group=CG_X", "stopAfter=5")
    given_up.wait_for("DONE")
    check_content(got(given_up.text()))
    assert numbers(got(given_up.text())) == dict.fromkeys(range(5), 1)
    assert entries(broker.store, TOPIC) == 0

    unsure.kill()
    transact(java, cluster, "checks=commit")
    discarded = [each.offset_msg_id for each in messages_of(broker.store, CHECK_MAX_TOPIC)]
    assert asyncio.run(resume(cluster, discarded)) == [""] * 5
    broker.set_clock("advance 30")
    wait_until(lambda: entries(broker.store, TOPIC) == 5, "they are committed")
    assert {each.get_property("n") for each in messages_of(broker.store, TOPIC)} == set("01234")
    assert all("was resumed as half message" in remark for remark in asyncio.run(resume(cluster, discarded)))
