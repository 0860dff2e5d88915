"""Sending of the rows of one task, without Spark and without a broker."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from rocketbroker.analytics.spark.message_rows import RowError
from rocketbroker.analytics.spark.message_writer import (
    MessageStreamWriter,
    MessageWriter,
    RowSender,
    SentMessages,
    SinkErrors,
)
from rocketbroker.analytics.spark.sink_options import sink_options
from rocketbroker.client.core.message import Message, SendResult
from rocketbroker.client.producer.message_sender import QueueSelector
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import RemotingConnectError, StoreError
from tests.support.sent_messages import StepClock, send_result

QUEUES = [MessageQueue("T", "a", number) for number in range(4)]
OPTIONS = {"namesrvAddr": "ns:9876", "topic": "T"}


class FakeSender:
    """Acknowledges messages after some turns of the loop; refuses those with certain bodies."""

    def __init__(self, *refused: bytes) -> None:
        self.refused = refused
        self.tries: list[bytes] = []
        self.acknowledged: list[tuple[bytes, int | None]] = []
        self.bytes_in_flight = self.most_in_flight = 0

    async def send(self, message: Message, queue: QueueSelector | None) -> SendResult:
        self.tries.append(message.body)
        self.bytes_in_flight += len(message.body)
        self.most_in_flight = max(self.most_in_flight, self.bytes_in_flight)
        for _ in range(message.body[-1] % 7):
            await asyncio.sleep(0)
        self.bytes_in_flight -= len(message.body)
        if message.body in self.refused:
            raise RemotingConnectError("no connection")
        self.acknowledged.append((message.body, queue(QUEUES, message).queue_id if queue else None))
        return send_result()


def batches(count: int, **columns: list[Any]) -> Iterator[pa.RecordBatch]:
    """Yield batches of ten rows with numbered bodies."""
    table = pa.table({"body": [b"%03d" % number for number in range(count)], **columns})
    yield from table.to_batches(max_chunksize=10)


def row_sender(sender: FakeSender, **options: str) -> RowSender:
    return RowSender(sender, SystemClock(), sink_options({**OPTIONS, **options}), "w:3")


async def test_rows_of_a_key_are_sent_in_order_and_others_at_once() -> None:
    sender = FakeSender()
    keys = [f"k{number % 3}" if number % 4 else None for number in range(100)]
    assert await row_sender(sender).send(batches(100, sharding_key=keys)) == 100
    by_key: dict[str | None, list[tuple[bytes, int | None]]] = {}
    for body, queue in sender.acknowledged:
        by_key.setdefault(keys[int(body)], []).append((body, queue))
    for key in ("k0", "k1", "k2"):
        assert by_key[key] == sorted(by_key[key])
        assert len({queue for _, queue in by_key[key]}) == 1
    assert {queue for _, queue in by_key[None]} == {None}
    assert by_key[None] != sorted(by_key[None])


async def test_bytes_in_flight_are_bounded() -> None:
    free, bounded = FakeSender(), FakeSender()
    await row_sender(free).send(batches(100))
    await row_sender(bounded, maxInFlightBytes="10").send(batches(100))
    assert free.most_in_flight > 10
    assert bounded.most_in_flight == 9


async def test_the_rate_is_that_of_the_task(clock: StepClock) -> None:
    options = sink_options({**OPTIONS, "maxMessagesPerSecondPerTask": "50"})
    assert await RowSender(FakeSender(), clock, options, "w:3").send(batches(101)) == 101
    assert clock.now == pytest.approx(2.0)


@pytest.mark.usefixtures("clock")
async def test_a_send_that_fails_ends_the_task_with_the_row_and_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    sender = FakeSender(b"012")
    with pytest.raises(RowError, match=r"^row 12 of the partition \(topic T\): no connection") as raised:
        await row_sender(sender, retryTimes="4").send(batches(100, sharding_key=["k"] * 100))
    note = "w:3 has sent 12 messages before it failed; if Spark runs it again, they are sent again with the same ids"
    assert raised.value.__notes__ == [note]
    assert caplog.messages == [f"rocketmq sink: {note}"]
    assert sender.tries[12:] == [b"012"] * 5


async def test_rows_before_one_that_is_no_message_are_sent() -> None:
    sender = FakeSender()
    topics = ["T"] * 15 + [None] * 5
    with pytest.raises(RowError, match=r"row 15 of the partition \(topic null\)"):
        await RowSender(sender, SystemClock(), sink_options({"namesrvAddr": "ns:1"}), "w:3").send(
            batches(20, topic=topics)
        )
    assert len(sender.acknowledged) == 15


async def test_an_error_of_the_rows_themselves_gets_the_note_as_well() -> None:
    def broken() -> Iterator[pa.RecordBatch]:
        yield from batches(10)
        raise StoreError("no more can be read")

    with pytest.raises(StoreError, match="no more can be read") as raised:
        await row_sender(FakeSender()).send(broken())
    assert "has sent 10 messages" in raised.value.__notes__[0]


@pytest.mark.parametrize(("refused", "topics", "resumes"), [([b"003"], ["T"] * 5, True), ([], ["T", None], False)])
def test_only_an_error_whose_cause_may_be_gone_says_how_the_query_goes_on(
    refused: list[bytes], topics: list[str | None], resumes: bool
) -> None:
    sender = RowSender(
        FakeSender(*refused), SystemClock(), sink_options({"namesrvAddr": "ns:1", "retryTimes": "0"}), "w:3"
    )
    with pytest.raises(RowError) as raised, SinkErrors():
        asyncio.run(sender.send(batches(len(topics), topic=topics)))
    assert [note for note in raised.value.__notes__ if "start the query again" in note] == [
        "Once the cause is gone, start the query again: it resumes from its checkpoint."
    ] * resumes


def test_an_aborted_write_says_what_was_sent(caplog: pytest.LogCaptureFixture) -> None:
    options = sink_options(OPTIONS)
    MessageStreamWriter(options).abort([SentMessages(3), None, SentMessages(4)], 5)
    MessageWriter(options).abort([None])
    assert "batch 5 was aborted: 2 finished tasks of 3 had sent 7 messages" in caplog.messages[0]
    assert "was aborted: 0 finished tasks of 1 had sent 0 messages" in caplog.messages[1]
