"""Answers to sends that have to wait, alone or as a run."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.codec.remoting.hot_responses import send_response
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.processor.support.send_answers import SendAnswers
from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    Acknowledgements,
    OnAcknowledged,
    PutMessageResult,
    PutMessageStatus,
)

TARGET: Any = SimpleNamespace(config=SimpleNamespace(topic_name="T"), is_retry=False, waits=True)
RUN = PutMessageResult(PutMessageStatus.PUT_OK, 100, 5, 0, 600, "", [100, 300, 500], [5, 0, 6])
ANSWERS = b"".join(send_response(n, n % 2, n, b"ID%d" % n, b"U%d" % n, b"") for n in (7, 8, 9))
TOO_LATE = Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "too late")
NO_TOPIC = Acknowledgement(PutMessageStatus.TOPIC_NOT_CREATED, "no topic")


class FakeWaits:
    """The disk, a replica and a topic that settles, each ended by the test."""

    def __init__(self) -> None:
        self.put: list[PutMessageResult] = []
        self.ends: list[OnAcknowledged] = []
        self.new_topic = False

    def acknowledge(self, result: PutMessageResult, tell: OnAcknowledged) -> None:
        self.put.append(result)
        self.ends.append(tell)

    def waits(self, *queues: tuple[str, int]) -> list[Any]:
        return [self.ends.append] if self.new_topic else []


@pytest.fixture
def waits() -> FakeWaits:
    return FakeWaits()


def answers_of(waits: FakeWaits, *acknowledge: Any) -> tuple[SendAnswers, BrokerFastFailure]:
    config: Any = SimpleNamespace(send_thread_pool_queue_capacity=10)
    fast_failure = BrokerFastFailure(config)
    targets: Any = waits
    return SendAnswers(Acknowledgements(*acknowledge), targets, fast_failure), fast_failure


def taken(found: Any) -> Any:
    assert isinstance(found, asyncio.Future)
    return found.result()


async def test_a_run_that_waits_for_nothing_is_answered_at_once_and_the_next_is_not_asked(waits: FakeWaits):
    answers, _ = answers_of(waits)
    TARGET.waits = True

    assert answers.run_when_safe(ANSWERS, RUN, TARGET) is ANSWERS

    assert not TARGET.waits


async def test_a_run_is_answered_together_when_it_is_on_disk_and_replicated(waits: FakeWaits):
    answers, fast_failure = answers_of(waits, waits.acknowledge, waits.acknowledge)

    answer = answers.run_when_safe(ANSWERS, RUN, TARGET)
    assert (waits.put, fast_failure.waiting) == ([RUN, RUN], 3)
    waits.ends[1](ACKNOWLEDGED)
    assert isinstance(answer, asyncio.Future)
    assert not answer.done()
    waits.ends[0](ACKNOWLEDGED)

    assert answer.result() is ANSWERS
    assert fast_failure.waiting == 0
    assert TARGET.waits


@pytest.mark.parametrize("outcome", [TOO_LATE, NO_TOPIC])
async def test_each_send_of_a_run_gets_the_answer_that_it_would_get_alone(waits: FakeWaits, outcome: Acknowledgement):
    answers, _ = answers_of(waits, waits.acknowledge)
    one = PutMessageResult(PutMessageStatus.PUT_OK, 100, 5, 0, 200)
    message: Any = None

    together = answers.run_when_safe(ANSWERS, RUN, TARGET)
    alone = [
        answers.when_safe(send_response(n, n % 2, n, b"ID%d" % n, b"U%d" % n, b""), one, TARGET, 0, message)
        for n in (7, 8, 9)
    ]
    for end in waits.ends:
        end(outcome)

    found: list[Command] = taken(together)
    assert found == [taken(each) for each in alone]
    assert [(each.code, each.remark) for each in found] == [(found[0].code, outcome.reason)] * 3
    places = [each.header and each.header["queueOffset"] for each in found]
    assert places == (["7", "8", "9"] if outcome is TOO_LATE else [None] * 3)


async def test_a_run_is_taken_while_there_is_room_for_all_its_sends(waits: FakeWaits):
    answers, _ = answers_of(waits, waits.acknowledge)

    assert answers.takes_run(TARGET, [b""] * 10)
    assert not answers.takes_run(TARGET, [b""] * 11)


async def test_a_run_to_a_topic_that_is_being_changed_is_not_taken(waits: FakeWaits):
    """One of its queues may be on disk and another not."""
    answers, _ = answers_of(waits)
    waits.new_topic = True

    assert not answers.takes_run(TARGET, [b""] * 2)


async def test_a_run_with_a_send_that_waits_for_no_slave_is_taken_by_a_broker_without_slaves(waits: FakeWaits):
    some = [b"WAIT\x01true\x02", b"WAIT\x01false\x02"]
    alone, _ = answers_of(waits, waits.acknowledge)
    master, _ = answers_of(waits, waits.acknowledge, waits.acknowledge)

    assert alone.takes_run(TARGET, some)
    assert not master.takes_run(TARGET, some)
    assert master.takes_run(TARGET, some[:1])


async def test_a_run_that_needs_more_slaves_than_are_in_sync_is_not_taken(waits: FakeWaits):
    answers, _ = answers_of(waits, waits.acknowledge, waits.acknowledge)
    shortage: list[PutMessageResult | None] = [PutMessageResult(PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH)]
    answers._acknowledgements.shortage = lambda: shortage[0]

    assert not answers.takes_run(TARGET, [b""] * 2)
    shortage[0] = None
    assert answers.takes_run(TARGET, [b""] * 2)


async def test_the_outcome_of_a_cancelled_answer_is_dropped(waits: FakeWaits):
    answers, fast_failure = answers_of(waits, waits.acknowledge)

    answer = answers.run_when_safe(ANSWERS, RUN, TARGET)
    assert isinstance(answer, asyncio.Future)
    answer.cancel()
    waits.ends[0](TOO_LATE)

    assert answer.cancelled()
    assert fast_failure.waiting == 0
