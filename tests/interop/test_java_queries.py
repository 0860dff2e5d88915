"""Messages that official Java clients look for, and where new groups begin: at hours that the broker's clock makes."""

import asyncio
import time

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.message.message_const import (
    COMPRESSION_LZ4_TYPE,
    COMPRESSION_ZLIB_TYPE,
    COMPRESSION_ZSTD_TYPE,
    compression_type,
)
from rocketbroker.codec.message.message_ext import MessageExt
from tests.support.clocked_broker import ClockedBroker, clocked_broker
from tests.support.java import Java
from tests.support.java_lines import Got, body_of, check_content, check_places, got
from tests.support.java_scenario import Scenario
from tests.support.java_toolchain import JavaError
from tests.support.our_servers import OurServers, make_topic
from tests.support.queue_ends import wait_delayed

pytestmark = pytest.mark.java

HOUR_S = 3600
HOUR_MS = HOUR_S * 1000
BATCH = 30


def found(clients: Scenario, verb: str, word: str, **options: object) -> list[Got]:
    """Return the result of one more query, in its order."""
    known = len(got(clients.process.text(), word))
    clients.do(verb, **options)
    return got(clients.process.text(), word)[known:]


def offset_at(clients: Scenario, time_ms: int) -> int:
    """The offset that the broker tells for a time, in the topic's only queue."""
    clients.do("offsets", topic="Find", at=time_ms)
    _, offset = clients.lines("OFFSET")[-1]
    return int(offset)


@pytest.mark.proves("Queries", "by key in a range of time, over many index files, newest first, up to a limit")
@pytest.mark.proves("Queries", "by unique id and by offset id; what is not there is not found")
@pytest.mark.proves("Queries", "the offset of a time, to the millisecond")
def test_messages_are_found_by_key_in_a_range_of_time_by_ids_and_by_time(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    # Index files so small that the keys are in many of them.
    broker = clocked_broker(our_servers, namesrv, maxHashSlotNum=100, maxIndexNum=20)
    make_topic(broker.address, namesrv, "Find", 1)
    clients = Scenario(java, namesrv)
    began = broker.time_ms()
    for batch in range(3):
        clients.do("send", topic="Find", first=batch * BATCH, count=BATCH, tags="A,B,C")
        broker.set_clock(f"step {HOUR_S}")

    def by_key(key: str, begin: int, end: int, most: int = 128) -> list[Got]:
        return found(clients, "key", "KEY", topic="Find", key=key, begin=begin, end=end, max=most)

    newest = by_key("common", began, began + 3 * HOUR_MS)
    assert len(list((broker.store / "index").iterdir())) > 3, "a query enters the keys that wait"
    assert [each.n for each in newest] == list(range(89, 25, -1)), "newest first, no more than maxMsgsNumBatch"
    everything = newest + by_key("common", began, began + HOUR_MS // 2)[-26:]
    check_content(everything)
    check_places(everything, clients.sent())
    second_hour = (began + HOUR_MS // 2, began + HOUR_MS + HOUR_MS // 2)
    assert [each.n for each in by_key("common", *second_hour)] == list(range(59, 29, -1))
    assert [each.n for each in by_key("common", *second_hour, most=10)] == list(range(59, 49, -1))
    assert [each.n for each in by_key("key31", *second_hour)] == [31]
    with pytest.raises(JavaError, match="no message"):
        by_key("key29", *second_hour)
    with pytest.raises(JavaError, match="no message"):
        by_key("key9999", began, began + 3 * HOUR_MS)

    offset_ids = {int(n): offset_id for n, offset_id in clients.lines("OFFSET-ID")}
    for each in clients.sent()[::29]:
        for message_id in (each.msg_id, offset_ids[each.n]):
            (message,) = found(clients, "view", "VIEW", topic="Find", id=message_id)
            assert (message.n, message.msg_id, message.queue_offset) == (each.n, each.msg_id, each.queue_offset)
            check_content([message])
    with pytest.raises(JavaError):
        clients.do("view", topic="Find", id=offset_ids[0][:-2] + "07")

    stored = [each.stored for each in reversed(everything)]
    for time_ms in (began - HOUR_MS, stored[10], stored[45], stored[45] + HOUR_MS // 2, stored[89], stored[89] + 1):
        assert offset_at(clients, time_ms) == sum(at < time_ms for at in stored), time_ms - began
    assert our_servers.errors() == []


def remove_old_files(broker: ClockedBroker, namesrv: str, topic: str) -> int:
    """Trigger retention; return the first offset that is left."""

    async def first_offset() -> int:
        async with AdminClient(namesrv) as admin:
            stats = await admin.examine_topic_stats(topic)
            (offsets,) = stats.offset_table.values()
            return offsets.min_offset

    async def ask() -> None:
        async with AdminClient(namesrv) as admin:
            await admin.delete_expired_commit_log(broker.address)

    asyncio.run(ask())
    broker.wait_until(lambda: asyncio.run(first_offset()) > 0, 30, "remove the first file")
    return asyncio.run(first_offset())


@pytest.mark.proves(
    "Consumers",
    "`CONSUME_FROM_FIRST_OFFSET`, `_LAST_OFFSET`, `_TIMESTAMP` for new groups; all of a young topic whatever the rule",
)
def test_new_groups_start_at_the_offset_of_their_rule(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    broker = clocked_broker(
        our_servers,
        namesrv,
        mappedFileSizeCommitLog=1 << 16,
        mappedFileSizeConsumeQueue=1000,
        fileReservedTime=1,
        deleteWhen=(time.localtime().tm_hour + 12) % 24,
        cleanResourceInterval=200,
    )
    make_topic(broker.address, namesrv, "Begin", 1)
    clients = Scenario(java, namesrv)
    # While the first message is in memory, a new group begins with it whatever its rule: it is a young topic.
    clients.do("send", topic="Begin", count=400, tags="A,B,C")
    clients.do("consume", name="young", group="G_young", topic="Begin", **{"from": "CONSUME_FROM_LAST_OFFSET"})
    clients.wait_got("young", lambda messages: len(messages) == 400, "all messages")
    assert sorted(each.n for each in clients.got("young")) == list(range(400))
    clients.do("stop", name="young")

    broker.set_clock(f"step {2 * HOUR_S}")
    first = remove_old_files(broker, namesrv, "Begin")
    clients.do("send", topic="Begin", first=400, count=10, tags="A,B,C")
    middle = broker.set_clock(f"step {HOUR_S}") - HOUR_MS // 2
    broker.set_clock(f"step {HOUR_S}")
    clients.do("send", topic="Begin", first=410, count=10, tags="A,B,C")
    for rule in ("FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP"):
        timestamp = time.strftime("%Y%m%d%H%M%S", time.localtime(middle // 1000))
        begin = {"from": f"CONSUME_FROM_{rule}", "timestamp": timestamp}
        clients.do("consume", name=rule, group=f"G_{rule}", topic="Begin", **begin)
    clients.do("send", topic="Begin", first=420, tags="A,B,C")

    taken = {}
    for rule in ("FIRST_OFFSET", "LAST_OFFSET", "TIMESTAMP"):
        clients.wait_got(rule, lambda messages: 420 in {each.n for each in messages}, "the newest message")
        check_content(clients.got(rule))
        taken[rule] = sorted(each.n for each in clients.got(rule))
    assert taken["LAST_OFFSET"] == [420]
    assert taken["TIMESTAMP"] == list(range(410, 421))
    # A file that ended with message 409 may have been removed meanwhile: it is two hours old as well.
    oldest = taken["FIRST_OFFSET"][0]
    assert first <= oldest <= 410
    assert taken["FIRST_OFFSET"] == list(range(oldest, 421))
    assert our_servers.errors() == []


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "message trace: RMQ_SYS_TRACE_TOPIC with the client's tracing on (`traceTopicEnable`)",
)
def test_traces_of_sends_and_consumption_are_found_by_apaches_tool(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    broker = clocked_broker(our_servers, namesrv, traceTopicEnable="true")
    make_topic(broker.address, namesrv, "Traced", 1)
    clients = Scenario(java, namesrv, trace=1)
    clients.do("consume", name="c", group="G_traced", topic="Traced")
    clients.do("send", topic="Traced", count=2, tags="ok,once")
    # The second one fails at first and comes again.
    wait_delayed(broker, namesrv, "Traced", {3: 1})
    broker.set_clock("step 10")
    clients.wait_got("c", lambda messages: len(messages) == 3, "the second once more")
    clients.do("stop", name="c")  # it sends what it has still to report

    told: list[list[str]] = []

    def all_told() -> bool:
        done = java.mqadmin("queryMsgTraceById", "-i", clients.sent()[1].msg_id, namesrv=namesrv)
        told[:] = [line.split() for line in done.stdout.splitlines() if line.startswith(("Pub", "Sub"))]
        return len(told) >= 3

    broker.wait_until(all_told, 60, "have all traces")
    assert sorted((kind, group, words[-1]) for kind, group, *words in told) == [
        ("Pub", "PG_Scenario", "success"),
        ("Sub", "G_traced", "failed"),
        ("Sub", "G_traced", "success"),
    ]
    assert our_servers.errors() == []


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "compressed bodies (zlib, LZ4, Zstandard) go through as they are, and our tools read them",
)
def test_compressed_bodies_are_delivered_and_readable_by_our_tools(java: Java, our_servers: OurServers):
    namesrv = our_servers.namesrv().address
    broker = our_servers.broker(namesrv)
    make_topic(broker.address, namesrv, "Packed", 1)
    clients = Scenario(java, namesrv)
    older = Scenario(java, namesrv, "4.9.8")
    clients.do("consume", name="c", group="G_new", topic="Packed")
    older.do("consume", name="c", group="G_old", topic="Packed")
    # Each hundredth body is long enough for the client to compress it.
    # A client of 4.9 writes zlib alone, and reads all.
    kinds = {
        99: ("ZLIB", COMPRESSION_ZLIB_TYPE),
        199: ("LZ4", COMPRESSION_LZ4_TYPE),
        299: ("ZSTD", COMPRESSION_ZSTD_TYPE),
    }
    for n, (kind, _) in kinds.items():
        clients.do("compress", by=kind)
        clients.do("send", topic="Packed", first=n, tags="A,B,C")
    older.do("send", topic="Packed", first=399, tags="A,B,C")
    messages = clients.wait_got("c", lambda messages: len(messages) == 4, "all")
    of_old = older.wait_got("c", lambda messages: len(messages) == 4, "all")

    for taken in (messages, of_old):
        assert sorted(each.n for each in taken) == [99, 199, 299, 399]
        check_content(taken)
        check_places(taken, clients.sent() + older.sent())

    async def view(offset_id: str) -> MessageExt:
        async with AdminClient(namesrv) as admin:
            return await admin.view_message(offset_id)

    for number, offset_id in clients.lines("OFFSET-ID") + older.lines("OFFSET-ID"):
        message = asyncio.run(view(offset_id))
        assert message.body == body_of(int(number)), "read by us"
        assert compression_type(message.sys_flag) == kinds.get(int(number), ("", COMPRESSION_ZLIB_TYPE))[1]
        assert message.body_length < len(message.body), "stored as it came"
    assert our_servers.errors() == []
