"""One scenario for our client and our mqadmin, run with Apache's broker and with ours."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import aclosing
from typing import Any

from rocketbroker.client.consumer.pull_consumer import PullConsumer
from rocketbroker.client.core.message import Message, SendResult, SendStatus
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.message.message_ext import MessageExt

TOPIC = "ClientScenario"
GROUP = "CG_ClientScenario"
NUMBER = 400


def body_of(index: int) -> bytes:
    """Return the body of a message; every tenth is large enough to be compressed."""
    return b"body %d" % index * (600 if index % 10 == 0 else 1)


def message_of(index: int) -> Message:
    return Message(
        TOPIC,
        body_of(index),
        tags=f"Tag{index % 2}",
        keys=(f"key{index}", "common"),
        properties={"n": str(index), "unicode": "é世"},
        flag=index,
    )


async def produce(namesrv_addr: str) -> dict[str, int]:
    """Send single messages, several under way, and batches; return the message number by unique id."""
    async with Producer("PG_ClientScenario", namesrv_addr) as producer:
        await producer.send(Message(TOPIC, b"first"), timeout_s=60)  # creates the topic
        singles = range(NUMBER // 2)
        results = await asyncio.gather(*(producer.send(message_of(index), timeout_s=60) for index in singles))
        ids = {result.msg_id: index for index, result in zip(singles, results, strict=True)}
        assert all(result.send_status is SendStatus.SEND_OK for result in results)
        for start in range(NUMBER // 2, NUMBER, 20):
            numbers = range(start, start + 20)
            (result,) = await producer.send_batch([message_of(index) for index in numbers], timeout_s=60)
            ids |= in_batch(result, numbers)
        await producer.send_oneway(Message(TOPIC, b"last", tags="oneway"))
    assert len(ids) == NUMBER
    return ids


def in_batch(result: SendResult, numbers: range) -> dict[str, int]:
    return dict(zip(result.msg_id.split(","), numbers, strict=True))


async def consume(namesrv_addr: str, number: int, expression: str = "*", group: str = GROUP) -> list[MessageExt]:
    """Consume ``count`` messages; commit all offsets except that of the last message."""
    messages: list[MessageExt] = []
    async with (
        asyncio.timeout(200),
        PullConsumer(group, namesrv_addr) as consumer,
        aclosing(consumer.iterate(TOPIC, expression=expression)) as stream,
    ):
        async for message in stream:
            messages.append(message)
            if len(messages) == number:
                break
    return messages


def check_messages(messages: list[MessageExt], ids: dict[str, int]) -> None:
    """Check that each message arrived exactly once, complete and in queue order."""
    mine = {ids[message.uniq_key or ""]: message for message in messages if message.uniq_key in ids}
    assert sorted(mine) == list(range(NUMBER))
    assert len(messages) == NUMBER + 2
    for index, message in mine.items():
        sent = message_of(index)
        assert (message.body, message.flag, message.tags) == (sent.body, index, sent.tags)
        assert message.keys == [f"key{index}", "common"]
        assert (message.properties["n"], message.properties["unicode"]) == (str(index), "é世")
    places = [(message.queue_id, message.queue_offset) for message in messages]
    for queue_id in {queue_id for queue_id, _ in places}:
        offsets = [offset for each, offset in places if each == queue_id]
        assert offsets == list(range(len(offsets)))


async def mqadmin(namesrv_addr: str, *args: str) -> tuple[int, str, str]:
    """Run our mqadmin as a process; return exit code, stdout and stderr."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "rocketbroker.app.mqadmin.cli", *args],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env={**os.environ, "NAMESRV_ADDR": namesrv_addr, "PYTHONPATH": "src"},
    )
    return done.returncode, done.stdout, done.stderr


async def mqadmin_json(namesrv_addr: str, *args: str) -> Any:
    """Return the value that ``--json`` prints; the command must succeed."""
    code, out, err = await mqadmin(namesrv_addr, *args, "--json")
    assert code == 0, err
    return json.loads(out)


async def run_scenario(namesrv_addr: str, broker_addr: str) -> None:
    """Send and consume, inspect by mqadmin, change and delete topics."""
    ids = await produce(namesrv_addr)
    messages = await consume(namesrv_addr, NUMBER + 2)
    check_messages(messages, ids)
    assert {message.tags for message in await consume(namesrv_addr, NUMBER // 2, "Tag1", "CG_Tag1")} == {"Tag1"}
    await check_topic(namesrv_addr, broker_addr, messages)
    await check_group_and_message(namesrv_addr, messages)
    await check_topic_changes(namesrv_addr, broker_addr)


async def check_topic(namesrv_addr: str, broker_addr: str, messages: list[MessageExt]) -> None:
    (broker,) = (await mqadmin_json(namesrv_addr, "clusterList"))["brokers"]
    assert (broker["clusterName"], broker["brokerId"], broker["addr"]) == ("DefaultCluster", 0, broker_addr)
    assert TOPIC in (await mqadmin_json(namesrv_addr, "topicList"))["topics"]
    by_cluster = (await mqadmin_json(namesrv_addr, "topicList", "-c"))["topics"]
    assert {
        "clusterName": "DefaultCluster",
        "topic": TOPIC,
        "consumerGroups": ["CG_ClientScenario", "CG_Tag1"],
        "error": None,
    } in by_cluster
    route = await mqadmin_json(namesrv_addr, "topicRoute", "-t", TOPIC)
    assert route["brokerDatas"][0]["brokerAddrs"] == {"0": broker_addr}
    assert (route["queueDatas"][0]["readQueueNums"], route["queueDatas"][0]["perm"]) == (4, 6)
    status = await mqadmin_json(namesrv_addr, "topicStatus", "-t", TOPIC)
    newest = {row["queueId"]: row["maxOffset"] for row in status["queues"]}
    assert newest == {queue: sum(each.queue_id == queue for each in messages) for queue in range(4)}


async def check_group_and_message(namesrv_addr: str, messages: list[MessageExt]) -> None:
    progress = await mqadmin_json(namesrv_addr, "consumerProgress", "-g", GROUP)
    assert sum(row["brokerOffset"] for row in progress["queues"] if row["topic"] == TOPIC) == len(messages)
    assert progress["diffTotal"] == 0
    groups = {row["group"]: row for row in (await mqadmin_json(namesrv_addr, "consumerProgress"))["groups"]}
    assert (groups[GROUP]["diffTotal"], groups[GROUP]["version"]) == (0, "OFFLINE")
    message = messages[7]
    for msg_id in (message.offset_msg_id, str(message.uniq_key)):
        (found,) = (await mqadmin_json(namesrv_addr, "queryMsgById", "-t", TOPIC, "-i", msg_id))["messages"]
        assert (found["offsetMsgId"], found["msgId"]) == (message.offset_msg_id, message.uniq_key)
        assert found["properties"] == message.properties
        assert {track["consumerGroup"] for track in found["tracks"]} == {GROUP, "CG_Tag1"}
    code, out, err = await mqadmin(namesrv_addr, "queryMsgById", "-t", TOPIC, "-i", "0" * 32)
    assert (code, out) == (1, "")
    assert err.startswith("mqadmin: 000")


async def check_topic_changes(namesrv_addr: str, broker_addr: str) -> None:
    for options in (("-c", "DefaultCluster"), ("-b", broker_addr)):
        code, out, err = await mqadmin(
            namesrv_addr, "updateTopic", *options, "-t", "Made", "-r", "3", "-w", "2", "-p", "4"
        )
        assert (code, err) == (0, "")
        assert out.startswith(f"create topic to {broker_addr} success.\nTopicConfig [topicName=Made, readQueueNums=3,")
    route = await mqadmin_json(namesrv_addr, "topicRoute", "-t", "Made")
    queues = route["queueDatas"][0]
    assert (queues["readQueueNums"], queues["writeQueueNums"], queues["perm"]) == (3, 2, 4)
    assert (await mqadmin(namesrv_addr, "updateTopic", "-c", "NoCluster", "-t", "Made"))[0] == 1
    code, out, _ = await mqadmin(namesrv_addr, "deleteTopic", "-c", "DefaultCluster", "-t", "Made")
    assert (code, out.splitlines()[1]) == (0, "delete topic [Made] from NameServer success.")
    code, out, err = await mqadmin(namesrv_addr, "topicRoute", "-t", "Made")
    assert (code, out) == (1, "")
    assert "No topic route info in name server for the topic: Made" in err
    assert len(err.splitlines()) == 1
