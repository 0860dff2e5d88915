"""Acknowledgements and changes of invisible times: what they end, what they refuse, and when they are answered."""

import inspect
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.pop_info import ExtraInfo
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from tests.support.fakes import FakeConnection
from tests.support.pop_broker import TOPIC, Handed, PopBroker, as_command
from tests.support.running import running

FULL = PutMessageResult(PutMessageStatus.DISK_FULL, reason="full")
HANDLE = "0 1795255000000 60000 1 0 broker-a 0 0"
ORDERED = "0 1795255000000 60000 999 0 broker-a 0 0"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[PopBroker]:
    """A broker with topic T of two queues."""
    async with running(PopBroker(tmp_path / "store", mapped_file_size_consume_queue=20_000)) as found:
        yield found


async def popped(broker: PopBroker, number: int = 1, group: str = "G", **fields: Any) -> list[Handed]:
    """Send messages to queue 0 and pop them."""
    for each in range(number):
        broker.send(b"%d" % each)
    return await broker.pop(group, 0, **fields)


def refused(broker: PopBroker, kind: type[Any], **fields: Any) -> tuple[int, str]:
    """Return code and remark of a refusal."""
    names: dict[str, Any] = {
        "consumer_group": "G",
        "topic": TOPIC,
        "queue_id": 0,
        "extra_info": HANDLE,
        "offset": 0,
    }
    if kind is ChangeInvisibleTimeRequestHeader:
        names["invisible_time"] = 1_000
        process: Callable[..., Any] = broker.acks.change_message_invisibletime
    else:
        process = broker.acks.ack_message
    with pytest.raises(BrokerResponseError) as error:
        process(FakeConnection(), request(0, kind(**(names | fields))))
    return error.value.code, error.value.remark or ""


BOTH = pytest.mark.parametrize("kind", [AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader])

REFUSALS: dict[str, tuple[dict[str, Any], ResponseCode, str]] = {
    "no topic": ({"topic": "X"}, ResponseCode.TOPIC_NOT_EXIST, "topic[X] not exist, apply first please!"),
    "no queue": (
        {"queue_id": 2},
        ResponseCode.MESSAGE_ILLEGAL,
        "queueId[2] is illegal, topic:[T] topicConfig.readQueueNums:[2] consumer:[127.0.0.1:50000]",
    ),
    "a negative queue": (
        {"queue_id": -1},
        ResponseCode.MESSAGE_ILLEGAL,
        "queueId[-1] is illegal, topic:[T] topicConfig.readQueueNums:[2] consumer:[127.0.0.1:50000]",
    ),
    "a lite topic": (
        {"lite_topic": "L"},
        ResponseCode.INVALID_PARAMETER,
        "liteTopic L: this broker has no lite topics, so nothing was popped from one",
    ),
    "no message": ({"offset": 9}, ResponseCode.NO_MESSAGE, "offset is illegal, key:T@0, commit:9, store:0~1"),
    "no handle": (
        {"extra_info": "a b"},
        ResponseCode.MESSAGE_ILLEGAL,
        "extraInfo 'a b': expected 8 to 10 fields instead of 2",
    ),
}


@BOTH
@pytest.mark.parametrize("name", REFUSALS)
async def test_a_request_is_refused_with_the_reason(broker: PopBroker, kind: type[Any], name: str) -> None:
    await popped(broker)
    fields, code, remark = REFUSALS[name]
    assert refused(broker, kind, **fields) == (code, remark)
    assert broker.check_points.count == 1


@pytest.mark.parametrize("invisible_ms", [-1, 366 * 86_400_000 + 1])
async def test_a_time_that_no_message_can_have_is_refused(broker: PopBroker, invisible_ms: int) -> None:
    await popped(broker)
    assert refused(broker, ChangeInvisibleTimeRequestHeader, invisible_time=invisible_ms) == (
        ResponseCode.INVALID_PARAMETER,
        f"invisibleTime {invisible_ms} is illegal; name 0 to 31,622,400,000 ms",
    )


@BOTH
@pytest.mark.parametrize("handle", [HANDLE, ORDERED])
async def test_a_request_without_a_record_is_refused(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch, kind: type[Any], handle: str
) -> None:
    await popped(broker)
    await popped(broker, 0, order=True, attempt_id="1")
    broker.offsets.commit("G", TOPIC, 0, 0)
    broker.orders.update("1", TOPIC, "G", 0, broker.clock.time_ms(), 60_000, [0])
    monkeypatch.setattr(broker.store.appender, "put_copy", lambda _: FULL)
    code, remark = refused(broker, kind, extra_info=handle)
    assert (code, remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "[DISK_FULL] full")
    assert broker.check_points.count == 1


# -- acknowledgements


async def test_an_acknowledged_message_does_not_return(broker: PopBroker) -> None:
    first, _ = await popped(broker, 2, invisible_ms=1_000)
    await broker.ack("G", first)
    broker.clock.advance(2)
    await broker.run()
    assert [each.body for each in await broker.pop()] == [b"1"]


async def test_a_late_acknowledgement_is_answered_alike(broker: PopBroker) -> None:
    (found,) = await popped(broker, invisible_ms=1_000)
    broker.clock.advance(2)
    await broker.run()
    assert (await broker.ack("G", found)).code == ResponseCode.SUCCESS
    (again,) = await broker.pop()
    assert (again.body, again.message.reconsume_times) == (b"0", 1)


async def test_a_group_that_has_popped_nothing_acknowledges_nothing(broker: PopBroker) -> None:
    (found,) = await popped(broker)
    assert (await broker.ack("other", found)).code == ResponseCode.SUCCESS
    changed = await broker.change("other", found, 5_000)
    assert changed.info.invisible_time == 5_000
    assert broker.check_points.count == 1
    assert broker.check_points.queues.find(TOPIC, "other", 0) is None


async def test_a_group_known_by_its_offset_only_is_found(broker: PopBroker) -> None:
    (found,) = await popped(broker)
    broker.offsets.commit("other", TOPIC, 0, 1)
    assert (await broker.ack("other", found)).code == ResponseCode.SUCCESS


@pytest.mark.parametrize("flush_disk_type", ["SYNC_FLUSH", "ASYNC_FLUSH"])
async def test_an_acknowledgement_is_answered_once_it_is_on_disk(tmp_path: Path, flush_disk_type: str) -> None:
    async with running(PopBroker(tmp_path / "sync", flush_disk_type=flush_disk_type)) as broker:
        broker.send()
        await broker.sync()
        (found,) = await broker.pop()
        info = found.info
        header = AckMessageRequestHeader("G", TOPIC, 0, found.handle, info.queue_offset)
        answer: Any = broker.acks.ack_message(FakeConnection(), request(0, header))
        assert inspect.isawaitable(answer) is (flush_disk_type == "SYNC_FLUSH")
        if inspect.isawaitable(answer):
            answer = await answer
            assert broker.store.flusher.flushed_offset == broker.check_points.log_end
            # One that was acknowledged before waits too: its record may not be on disk yet.
            again = broker.acks.ack_message(FakeConnection(), request(0, header))
            assert inspect.isawaitable(again)
            assert (await again).code == ResponseCode.SUCCESS
        assert as_command(answer).code == ResponseCode.SUCCESS


async def test_too_many_waiting_acknowledgements_are_refused(tmp_path: Path) -> None:
    async with running(PopBroker(tmp_path / "sync", flush_disk_type="SYNC_FLUSH")) as broker:
        broker.send()
        await broker.sync()
        await broker.pop()
        broker.acks.fast_failure.waiting = 1_000_000
        for kind in (AckMessageRequestHeader, ChangeInvisibleTimeRequestHeader):
            code, remark = refused(broker, kind)
            assert code == ResponseCode.SYSTEM_BUSY
            assert "sends are not acknowledged yet" in remark
        broker.acks.fast_failure.waiting = 0


# -- batches


def batch(found: list[Handed], bits: bytes, **fields: Any) -> BatchAck:
    """An acknowledgement of messages of one pop."""
    info = found[0].info
    names: dict[str, Any] = {
        "consumer_group": "G",
        "topic": TOPIC,
        "retry": info.retry,
        "start_offset": info.ck_queue_offset,
        "queue_id": 0,
        "revive_queue_id": info.revive_qid,
        "pop_time": info.pop_time,
        "invisible_time": info.invisible_time,
        "bit_set": bits,
    }
    return BatchAck(**(names | fields))


async def acknowledge(broker: PopBroker, *acks: BatchAck) -> int:
    """Send a batch; return the code of the answer."""
    body = BatchAckMessageRequestBody("broker-a", list(acks)).encode()
    return (await broker.call(broker.acks.batch_ack_message, None, body)).code


def unacknowledged(broker: PopBroker) -> list[int]:
    """Offsets of the messages of queue 0 that are in flight."""
    queue = broker.check_points.queues.get(TOPIC, "G", 0)
    return [offset for each in queue.open.values() for offset in each.unacknowledged]


async def test_a_batch_acknowledges_the_named_messages(broker: PopBroker) -> None:
    found = await popped(broker, 12)
    assert await acknowledge(broker, batch(found, bytes([0b101, 0b1000_0010]))) == ResponseCode.SUCCESS
    # Bit 15 is behind the end of the queue.
    assert unacknowledged(broker) == [1, 3, 4, 5, 6, 7, 8, 10, 11]


async def test_a_batch_may_name_several_pops(broker: PopBroker) -> None:
    first = await popped(broker, 1)
    broker.clock.advance(1)
    second = await popped(broker, 1)
    unknown = batch(first, b"\x01", consumer_group="other")
    assert await acknowledge(broker, batch(first, b"\x01"), unknown, batch(second, b"\x01")) == ResponseCode.SUCCESS
    assert unacknowledged(broker) == []


async def test_a_batch_in_order_goes_on_with_the_next_message(broker: PopBroker) -> None:
    found = await popped(broker, 3, order=True, attempt_id="1")
    assert await acknowledge(broker, batch(found, b"\x05")) == ResponseCode.SUCCESS
    assert broker.offsets.query("G", TOPIC, 0) == 1
    assert await acknowledge(broker, batch(found, b"\x02")) == ResponseCode.SUCCESS
    assert broker.offsets.query("G", TOPIC, 0) == 3


@pytest.mark.parametrize("body", [b"", b'{"brokerName":"b","acks":[]}'])
async def test_a_batch_without_messages_is_refused(broker: PopBroker, body: bytes) -> None:
    with pytest.raises(BrokerResponseError, match="the request acknowledges no message") as error:
        await broker.call(broker.acks.batch_ack_message, None, body)
    assert error.value.code == ResponseCode.NO_MESSAGE


@pytest.mark.parametrize(
    ("fields", "remark"),
    [
        ({"retry": "3"}, "retry '3': expected 0, 1 or 2"),
        ({"bit_set": bytes(8_193)}, "BatchAck: bitSet of 8,193 bytes exceeds the limit of 8,192"),
    ],
)
async def test_a_batch_that_cannot_be_read_is_refused(broker: PopBroker, fields: dict[str, Any], remark: str) -> None:
    found = await popped(broker)
    names = {"bits": b"\x01"} | {("bits" if name == "bit_set" else name): each for name, each in fields.items()}
    with pytest.raises(BrokerResponseError) as error:
        await acknowledge(broker, batch(found, **names))
    assert error.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert (error.value.remark or "").startswith(remark)


# -- order


async def test_an_ordered_acknowledgement_wakes_the_pops_that_wait(
    broker: PopBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[tuple[Any, ...]] = []
    monkeypatch.setattr(broker.polling, "wake", lambda *place: woken.append(place))
    first, second = await popped(broker, 2, order=True, attempt_id="1")
    await broker.ack("G", first)
    assert woken == []
    await broker.ack("G", second)
    assert woken == [(TOPIC, "G", 0)]


async def test_a_message_that_the_batch_has_not_is_refused(broker: PopBroker) -> None:
    first, _ = await popped(broker, 2, order=True, attempt_id="1", most=2)
    broker.send()
    foreign = ExtraInfo(*first.info[:-1], queue_offset=2).encode()
    assert refused(broker, AckMessageRequestHeader, extra_info=foreign, offset=2) == (
        ResponseCode.MESSAGE_ILLEGAL,
        "offset is illegal, key:T@G@0, commit:2: its pop had no such message",
    )


@pytest.mark.parametrize("stale", ["committed", "another batch"])
async def test_a_stale_ordered_handle_does_nothing(broker: PopBroker, stale: str) -> None:
    first, *_ = await popped(broker, 2, order=True, attempt_id="1", invisible_ms=1_000)
    if stale == "committed":
        await broker.ack("G", first)
    else:
        broker.clock.advance(2)
        await broker.pop("G", 0, order=True, attempt_id="2")
    end = broker.check_points.log_end
    assert (await broker.ack("G", first)).code == ResponseCode.SUCCESS
    assert broker.check_points.log_end == end


async def test_an_ordered_acknowledgement_does_not_undo_a_reset(broker: PopBroker) -> None:
    first, _ = await popped(broker, 2, order=True, attempt_id="1")
    broker.reset.assign("G", TOPIC, {0: 0})
    await broker.ack("G", first)
    assert broker.offsets.query("G", TOPIC, 0) == 0
    assert len(await broker.pop("G", 0, order=True, attempt_id="2")) == 2


# -- changes


async def test_a_changed_time_counts_from_now(broker: PopBroker) -> None:
    (found,) = await popped(broker, invisible_ms=1_000)
    broker.clock.advance(0.5)
    changed = await broker.change("G", found, 3_000)
    assert changed.info.pop_time == broker.clock.time_ms()
    broker.clock.advance(2.9)
    await broker.run()
    assert await broker.pop() == []
    broker.clock.advance(0.1)
    await broker.run()
    assert len(await broker.pop()) == 1


async def test_the_old_handle_is_none_any_more(broker: PopBroker) -> None:
    (found,) = await popped(broker)
    broker.clock.advance(1)
    changed = await broker.change("G", found, 5_000)
    await broker.ack("G", found)
    assert unacknowledged(broker) == [0]
    await broker.ack("G", changed)
    assert unacknowledged(broker) == []


async def test_the_handle_of_another_broker_changes_nothing(broker: PopBroker) -> None:
    """That broker may have popped at the same time from the same offset of a queue of this name."""
    found = await popped(broker, 2)
    first, _ = [each._replace(handle=each.info._replace(broker_name="broker-b").encode()) for each in found]
    body = BatchAckMessageRequestBody("broker-b", [batch(found, b"\x03")]).encode()
    end = broker.check_points.log_end
    assert (await broker.ack("G", first)).code == ResponseCode.SUCCESS
    assert (await broker.call(broker.acks.batch_ack_message, None, body)).code == ResponseCode.SUCCESS
    await broker.change("G", first, 0)
    assert unacknowledged(broker) == [0, 1]
    assert broker.check_points.log_end == end


@BOTH
async def test_the_handle_of_another_topic_changes_nothing(broker: PopBroker, kind: type[Any]) -> None:
    broker.topics.update(TopicConfig("Other", 2, 2))
    await popped(broker, 2)
    broker.clock.advance(1)
    broker.send(topic="Other")
    await broker.pop(topic="Other", queue_id=0)
    (handle, *_) = (each.handle for each in await popped(broker))
    fields = {"invisible_time": 1_000} if kind is ChangeInvisibleTimeRequestHeader else {}
    process = broker.acks.change_message_invisibletime if fields else broker.acks.ack_message

    answer = await broker.call(process, kind("G", "Other", 0, handle, 0, **fields))

    assert answer.code == ResponseCode.SUCCESS
    queues = [broker.check_points.queues.get(topic, "G", 0) for topic in (TOPIC, "Other")]
    assert [queue.in_flight for queue in queues] == [3, 1]
    assert [queue.first_revive_time - broker.clock.time_ms() for queue in queues] == [59_000, 60_000]  # type: ignore[operator]


async def test_an_acknowledged_message_cannot_be_changed(broker: PopBroker) -> None:
    (found,) = await popped(broker)
    await broker.ack("G", found)
    await broker.change("G", found, 0)
    await broker.run()
    assert await broker.pop() == []


async def test_an_ordered_message_keeps_the_time_of_its_pop(broker: PopBroker) -> None:
    (found,) = await popped(broker, order=True, attempt_id="1")
    broker.clock.advance(1)
    header = ChangeInvisibleTimeRequestHeader("G", TOPIC, 0, found.handle, 0, 5_000)
    answer = await broker.call(broker.acks.change_message_invisibletime, header)
    assert isinstance(answer.header, ChangeInvisibleTimeResponseHeader)
    assert (answer.header.pop_time, answer.header.invisible_time) == (found.info.pop_time, 6_000)
    await broker.ack("G", found)
    # It is committed: nothing is changed.
    end = broker.check_points.log_end
    await broker.call(broker.acks.change_message_invisibletime, header)
    assert broker.check_points.log_end == end
