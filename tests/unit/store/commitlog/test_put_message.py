import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    Acknowledgements,
    MessageExtBrokerInner,
    OnAcknowledged,
    PutMessageResult,
    PutMessageStatus,
    Refusal,
    StandingRefusals,
    outcome_of,
    when_all,
)


def test_a_message_needs_a_topic_a_queue_and_a_body_alone():
    message = MessageExtBrokerInner("T", 1, b"body")

    assert (message.properties, message.flag, message.sys_flag, message.born_host) == (b"", 0, 0, bytes(8))


def test_a_put_that_failed_has_no_place():
    result = PutMessageResult(PutMessageStatus.DISK_FULL, reason="why")

    assert (result.physical_offset, result.queue_offset, result.physical_offsets) == (-1, -1, ())


def test_a_batch_is_one_send_and_each_message_of_a_run_is_one():
    batch = PutMessageResult(PutMessageStatus.PUT_OK, 0, 5, 0, 200, "", [0, 100])
    run = PutMessageResult(PutMessageStatus.PUT_OK, 0, 5, 0, 200, "", [0, 100], [5, 0])

    assert (batch.sends, run.sends) == (1, 2)


def current(refusals: StandingRefusals) -> tuple[PutMessageStatus, str] | None:
    return None if refusals.current is None else (refusals.current.status, refusals.current.reason)


def test_nothing_is_rejected_at_first():
    refusals = StandingRefusals()

    assert refusals.current is None
    assert refusals.reason(Refusal.DISK_FULL) == ""
    refusals.clear(Refusal.DISK_FULL)
    assert refusals.current is None


def test_an_owner_ends_its_own_cause_alone():
    refusals = StandingRefusals()
    refusals.set(Refusal.DISK_FULL, "91 %")
    refusals.set(Refusal.READ_ONLY, "EIO")
    assert current(refusals) == (PutMessageStatus.READ_ONLY, "EIO")
    assert not refusals.only(Refusal.READ_ONLY)

    refusals.clear(Refusal.READ_ONLY)

    assert current(refusals) == (PutMessageStatus.DISK_FULL, "91 %")
    assert refusals.only(Refusal.DISK_FULL)
    assert refusals.reason(Refusal.READ_ONLY) == ""
    refusals.set(Refusal.DISK_FULL, "92 %")
    assert current(refusals) == (PutMessageStatus.DISK_FULL, "92 %")
    refusals.clear(Refusal.DISK_FULL)
    assert refusals.current is None


@pytest.mark.parametrize("order", [1, -1])
def test_the_most_severe_reason_counts_in_any_order(order: int):
    refusals = StandingRefusals()
    for refusal in list(Refusal)[::order]:
        refusals.set(refusal, refusal.name)

    told = []
    for refusal in Refusal:
        told.append(current(refusals))
        refusals.clear(refusal)

    assert told == [(refusal.value, refusal.name) for refusal in Refusal]
    assert refusals.current is None


def test_threads_do_not_end_each_others_causes():
    refusals = StandingRefusals()
    refusals.set(Refusal.NOT_DISPATCHED, "stays")

    def come_and_go(refusal: Refusal) -> None:
        for _ in range(2000):
            refusals.set(refusal, "comes")
            refusals.clear(refusal)

    threads = [
        threading.Thread(target=come_and_go, args=(refusal,)) for refusal in (Refusal.READ_ONLY, Refusal.DISK_FULL)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert current(refusals) == (PutMessageStatus.NOT_DISPATCHED, "stays")


PUT = PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=100)
NOT_ON_DISK = Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "the disk refused")
NO_TOPIC = Acknowledgement(PutMessageStatus.TOPIC_NOT_CREATED, "the table cannot be written")


class FakeWait:
    """Ends when the test says so."""

    def __init__(self) -> None:
        self.began: list[PutMessageResult] = []
        self.end: OnAcknowledged = lambda _: None

    def for_message(self, result: PutMessageResult, tell: OnAcknowledged) -> None:
        self.began.append(result)
        self.end = tell

    def __call__(self, tell: OnAcknowledged) -> None:
        self.end = tell


@pytest.fixture
def flush() -> FakeWait:
    return FakeWait()


@pytest.fixture
def replica() -> FakeWait:
    return FakeWait()


def test_a_message_that_waits_for_nothing_is_acknowledged_at_once():
    outcomes: list[Acknowledgement] = []
    acknowledgements = Acknowledgements()

    acknowledgements.wait_for(PUT)(outcomes.append)

    assert (acknowledgements.required, outcomes) == (False, [ACKNOWLEDGED])


def test_one_wait_is_handed_on_as_it_is(flush: FakeWait):
    outcomes: list[Acknowledgement] = []
    tell = outcomes.append

    Acknowledgements(flush.for_message).wait_for(PUT)(tell)

    assert (flush.began, flush.end) == ([PUT], tell)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(
    ("first", "second", "worst"),
    [
        (ACKNOWLEDGED, ACKNOWLEDGED, ACKNOWLEDGED),
        (NOT_ON_DISK, ACKNOWLEDGED, NOT_ON_DISK),
        (ACKNOWLEDGED, NO_TOPIC, NO_TOPIC),
        (NOT_ON_DISK, NO_TOPIC, NO_TOPIC),
    ],
)
def test_the_most_severe_outcome_counts_in_any_order(
    flush: FakeWait,
    replica: FakeWait,
    order: Sequence[int],
    first: Acknowledgement,
    second: Acknowledgement,
    worst: Acknowledgement,
):
    outcomes: list[Acknowledgement] = []
    Acknowledgements(flush.for_message, replica.for_message).wait_for(PUT, on_slaves=True)(outcomes.append)
    assert flush.began == replica.began == [PUT]
    ends = [(flush.end, first), (replica.end, second)]

    end, outcome = ends[order[0]]
    end(outcome)
    assert outcomes == [], "one wait has not ended"
    end, outcome = ends[order[1]]
    end(outcome)

    assert outcomes == [worst]


@pytest.mark.parametrize("on_disk", [True, False])
def test_a_copy_that_the_broker_makes_waits_for_no_slave(flush: FakeWait, replica: FakeWait, on_disk: bool):
    outcomes: list[Acknowledgement] = []
    acknowledgements = Acknowledgements(flush.for_message if on_disk else None, replica.for_message)
    acknowledgements.wait_for(PUT)(outcomes.append)
    if on_disk:
        flush.end(ACKNOWLEDGED)

    assert (replica.began, outcomes) == ([], [ACKNOWLEDGED])
    assert (acknowledgements.required, acknowledgements.on_slaves) == (True, True)


def test_a_message_may_have_a_wait_of_its_own(flush: FakeWait, replica: FakeWait):
    outcomes: list[Acknowledgement] = []
    Acknowledgements(flush.for_message).wait_for(PUT, also=[replica])(outcomes.append)

    replica.end(NO_TOPIC)
    flush.end(ACKNOWLEDGED)

    assert outcomes == [NO_TOPIC]


async def test_a_wait_that_is_late_ends_with_the_deadline(flush: FakeWait, replica: FakeWait):
    late = Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "not in time")
    told = asyncio.Event()
    outcomes: list[Acknowledgement] = []

    def tell(outcome: Acknowledgement) -> None:
        outcomes.append(outcome)
        told.set()

    when_all([flush, replica], tell, 0.01, late)
    flush.end(ACKNOWLEDGED)
    await asyncio.wait_for(told.wait(), 60)
    replica.end(NO_TOPIC)

    assert outcomes == [late], "what ends later changes nothing"


async def test_a_late_message_is_never_acknowledged(flush: FakeWait):
    outcome: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()

    when_all([flush], outcome.set_result, 0.01)

    assert not (await asyncio.wait_for(outcome, 60)).ok


async def test_a_failure_before_the_deadline_is_not_hidden_by_it(flush: FakeWait, replica: FakeWait):
    late = Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "not in time")
    outcome: asyncio.Future[Acknowledgement] = asyncio.get_running_loop().create_future()

    when_all([flush, replica], outcome.set_result, 0.01, late)
    flush.end(NO_TOPIC)

    assert await asyncio.wait_for(outcome, 60) == NO_TOPIC


async def test_the_deadline_ends_with_the_last_wait(flush: FakeWait, replica: FakeWait, monkeypatch):
    timers: list[asyncio.TimerHandle] = []
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(*args: Any) -> asyncio.TimerHandle:
        timers.append(call_later(*args))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted)

    when_all([flush, replica], lambda _: None, 60.0, NOT_ON_DISK)
    flush.end(ACKNOWLEDGED)
    replica.end(ACKNOWLEDGED)

    assert [timer.cancelled() for timer in timers] == [True]


async def test_the_outcome_of_a_cancelled_wait_is_dropped(flush: FakeWait, replica: FakeWait):
    acknowledgements = Acknowledgements(flush.for_message, replica.for_message)
    given_up, kept = acknowledgements.acknowledged(PUT), outcome_of(replica)
    given_up.cancel()

    flush.end(ACKNOWLEDGED)
    replica.end(ACKNOWLEDGED)

    assert given_up.cancelled()
    assert await kept == ACKNOWLEDGED
