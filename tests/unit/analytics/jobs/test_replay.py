"""Messages that a replay makes of exported rows, and their sending; without Spark and without a broker."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from rocketbroker.analytics.jobs.exported_rows import Ready, prepare
from rocketbroker.analytics.jobs.replay import Replay, in_order, rehearse
from rocketbroker.client.core.message import Message, SendResult
from rocketbroker.codec.message.compression import compress
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE, INNER_BATCH_FLAG
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import RemotingConnectError, StoreError
from tests.support.sent_messages import StepClock, send_result

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]


def row(number: int = 0, **fields: Any) -> dict[str, Any]:
    return {
        "broker": "a",
        "topic": "T",
        "queue_id": 1,
        "physical_offset": number,
        "store_timestamp": 1000 + number,
        "flag": 7,
        "sys_flag": 0,
        "body": b"body %d" % number,
        "properties": {"KEYS": "k1 k2", "TAGS": "t", "UNIQ_KEY": "U", "WAIT": "true", "colour": "red"},
        **fields,
    }


class FakeSender:
    """Takes messages at once; refuses each so often."""

    def __init__(self, refused: dict[bytes, int] | None = None) -> None:
        self.sent: list[tuple[bytes, int]] = []
        self.refused = refused or {}
        self.under_way: set[bytes] = set()
        self.most_at_once = 0

    async def send(self, message: Message, queue: Any) -> SendResult:
        self.under_way.add(message.body)
        self.most_at_once = max(self.most_at_once, len(self.under_way))
        for _ in range(10):  # as an answer takes some turns of the loop
            await asyncio.sleep(0)
        self.under_way.remove(message.body)
        if self.refused.get(message.body, 0):
            self.refused[message.body] -= 1
            raise RemotingConnectError("no connection")
        self.sent.append((message.body, queue(QUEUES, message).queue_id))
        return send_result()


def test_keys_tags_flag_body_and_own_properties_are_kept() -> None:
    ready = prepare(row(), {})
    assert isinstance(ready, Ready)
    assert ready.message == Message("T", b"body 0", "t", "k1 k2", {"colour": "red"}, 7)
    assert ready.queue == ("a", "T", 1)


def test_a_compressed_body_is_unpacked() -> None:
    packed = row(body=compress(b"x" * 1000), sys_flag=COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE)
    ready = prepare(packed, {})
    assert isinstance(ready, Ready)
    assert ready.message.body == b"x" * 1000
    assert prepare(row(body=b"no zlib", sys_flag=COMPRESSED_FLAG), {}) == "body cannot be decompressed"


def test_a_topic_may_go_to_another() -> None:
    ready = prepare(row(), {"T": "Copy", "U": "V"})
    assert isinstance(ready, Ready)
    assert (ready.message.topic, ready.queue) == ("Copy", ("a", "T", 1))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"topic": "%RETRY%G"}, "retry or dead letter"),
        ({"topic": "%DLQ%G"}, "retry or dead letter"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "system topic"),
        ({"topic": "RMQ_SYS_TRANS_HALF_TOPIC"}, "system topic"),
        ({"topic": "rmq_sys_REVIVE_LOG_DefaultCluster"}, "system topic"),
        ({"sys_flag": INNER_BATCH_FLAG}, "batch of a BatchCQ topic"),
        ({"body": b""}, "the message body is empty; give at least one byte"),
    ],
)
def test_what_cannot_be_sent_is_left_out_with_a_reason(fields: dict[str, Any], reason: str) -> None:
    assert prepare(row(**fields), {}) == reason


@pytest.mark.parametrize("name", ["topic", "queue_id", "store_timestamp", "flag", "sys_flag"])
def test_a_row_without_required_fields_is_not_a_message(name: str) -> None:
    assert prepare(row() | {name: None}, {}) == "not a message of an export"


def test_a_dry_run_counts_what_would_be_sent_and_left_out() -> None:
    done = rehearse([row(0), row(1), row(2, topic="U"), row(3, topic="%DLQ%G")], {"U": "V"})
    assert (done.sent, done.skipped) == ({"T": 2, "V": 1}, {"retry or dead letter": 1})


async def test_messages_of_a_queue_go_in_their_order_to_the_queue_of_that_number() -> None:
    sender = FakeSender()
    rows = [row(number, queue_id=number % 6) for number in range(60)]
    done = await Replay(sender, StepClock(), lanes=4).run(rows)
    assert done.sent == {"T": 60}
    for queue_id in range(6):
        bodies = [body for body, _ in sender.sent if int(body[5:]) % 6 == queue_id]
        assert bodies == [b"body %d" % number for number in range(60) if number % 6 == queue_id]
    assert {queue for body, queue in sender.sent if int(body[5:]) % 6 == 5} == {1}
    assert sender.most_at_once == 4


async def test_what_fails_is_tried_again_and_may_have_been_sent_before(clock: StepClock) -> None:
    sender = FakeSender({b"body 1": 6})
    done = await Replay(sender, clock).run([row(0), row(1), row(2)])
    assert (done.sent, done.failure) == ({"T": 3}, "")
    assert [body for body, _ in sender.sent] == [b"body 0", b"body 1", b"body 2"]
    assert clock.now == pytest.approx(6.3), "a broker may restart meanwhile"


async def test_it_ends_where_a_broker_takes_no_more_and_says_where_to_continue(clock: StepClock) -> None:
    sender = FakeSender({b"body 3": 99})
    told: list[int] = []
    rows = [row(number) for number in range(50)]
    done = await Replay(sender, clock, progress=told.append).run(rows)
    assert [body for body, _ in sender.sent] == [b"body 0", b"body 1", b"body 2"]
    assert (done.failure, done.resume_ms) == ("T: no connection", 1003)
    assert told == [1, 2, 3]


async def test_the_rate_is_kept_on_the_whole(clock: StepClock) -> None:
    sender = FakeSender()
    await Replay(sender, clock, rate=10).run([row(number) for number in range(21)])
    assert clock.now == pytest.approx(2.0)
    assert len(sender.sent) == 21


async def test_what_waits_for_rows_comes_in_no_burst(clock: StepClock) -> None:
    def rows() -> Iterator[dict[str, Any]]:
        clock.now += 30
        yield from map(row, range(100))
        clock.now += 60
        yield from map(row, range(100, 200))

    await Replay(FakeSender(), clock, rate=10).run(rows())
    # The second hundred begins with what was due in the last second.
    assert clock.now == pytest.approx(30 + 9.9 + 60 + 8.9)


class BrokenSender(FakeSender):
    """Takes some messages, and then has an error that nobody foresaw."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    async def send(self, message: Message, queue: Any) -> SendResult:
        if len(self.sent) == self.count:
            raise OSError("the socket is gone")
        return await super().send(message, queue)


async def test_an_error_that_nobody_foresaw_ends_a_replay_and_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    sender = BrokenSender(3)
    done = await Replay(sender, StepClock()).run(row(number) for number in range(500))
    assert (done.sent, done.failure) == ({"T": 3}, "T: OSError: the socket is gone")
    assert done.resume_ms == 1003
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [OSError]


class FrameWithout:
    """Frame without a column: it raises as Spark does."""

    def select(self, *_columns: str) -> DataFrame:
        raise AnalysisException("no column `broker` in it")


def test_messages_that_lack_a_column_cannot_be_read() -> None:
    rows = in_order(cast("DataFrame", FrameWithout()))
    with pytest.raises(StoreError, match=r"^the export cannot be read: no column `broker` in it$"):
        next(rows)


def rows_up_to(count: int, error: Exception) -> Iterator[dict[str, Any]]:
    yield from map(row, range(count))
    raise error


async def test_rows_that_cannot_be_read_end_a_replay_with_what_was_sent() -> None:
    sender = FakeSender()
    done = await Replay(sender, StepClock()).run(rows_up_to(250, StoreError("a file of the export is gone")))
    assert (done.sent, done.failure) == ({"T": 200}, "a file of the export is gone")
    # Of the last one, others of the same millisecond may lack.
    assert done.resume_ms == 1199


async def test_a_broker_that_takes_no_more_is_where_to_continue_though_rows_end_early(clock: StepClock) -> None:
    sender = FakeSender({b"body 198": 99})
    done = await Replay(sender, clock).run(rows_up_to(250, StoreError("gone")))
    assert (done.sent, done.failure, done.resume_ms) == ({"T": 198}, "T: no connection", 1198)


async def test_a_replay_of_no_readable_row_has_nothing_to_continue_from() -> None:
    done = await Replay(FakeSender(), StepClock()).run(rows_up_to(0, StoreError("gone")))
    assert (done.sent, done.failure, done.resume_ms) == ({}, "gone", None)


async def test_a_replay_that_is_cancelled_waits_for_no_answer() -> None:
    begun = asyncio.Event()

    class SilentSender:
        async def send(self, message: Message, queue: Any) -> SendResult:
            begun.set()
            return await asyncio.Future()

    replaying = asyncio.create_task(Replay(SilentSender(), StepClock()).run(map(row, range(500))))
    await begun.wait()
    replaying.cancel()
    with pytest.raises(asyncio.CancelledError):
        await replaying
