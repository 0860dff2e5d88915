"""Timer messages of an acting master: what goes to another master, and what waits for the own one."""

from collections.abc import Awaitable, Callable

import pytest

from rocketbroker.codec.message.message_properties import MAX_SENT_PROPERTIES_LENGTH
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.store.message_store import MessageStore
from tests.support.damage import overwrite
from tests.support.fakes import FakeClock
from tests.support.running import running
from tests.support.timers import TIMER_TOPIC, Timer
from tests.support.waiting import until


class OtherMaster:
    """Takes messages while ``takes`` is true."""

    def __init__(self) -> None:
        self.takes = True
        self.got: list[bytes] = []
        self.properties: list[bytes] = []

    async def put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        if not self.takes:
            return PutMessageResult(PutMessageStatus.SLAVE)
        self.got.append(bytes(message.body))
        self.properties.append(message.properties)
        return PutMessageResult(PutMessageStatus.PUT_OK)


@pytest.fixture
def other() -> OtherMaster:
    return OtherMaster()


@pytest.fixture
async def slave(again: Callable[..., Awaitable[Timer]], other: OtherMaster) -> Timer:
    return await again(put=other.put)


def damage(store: MessageStore, offset: int) -> None:
    queue = store.queues.find(TIMER_TOPIC, 0)
    assert queue is not None
    entry = queue.entry(offset)
    assert entry is not None
    [file] = store.commit_log.queue.files
    # A byte of the body.
    overwrite(file, entry.physical_offset + 90, b"?")


def begin_at(store: MessageStore, offset: int) -> None:
    queue = store.queues.find(TIMER_TOPIC, 0)
    assert queue is not None
    queue.min_offset = offset


async def test_due_messages_go_to_another_master(slave: Timer, other: OtherMaster, clock: FakeClock):
    for number in range(3):
        slave.put(b"message %d" % number, TIMER_DELAY_SEC=5)
    other.takes = False
    clock.advance(7)
    await slave.run()
    assert slave.service.checkpoint().last_timer_queue_offset == 0
    other.takes = True
    await slave.run()
    assert other.got == [b"message 0", b"message 1", b"message 2"]
    assert slave.delivered() == []


async def test_another_master_takes_the_longest_properties_that_were_acknowledged(
    slave: Timer, other: OtherMaster, clock: FakeClock
):
    room = MAX_SENT_PROPERTIES_LENGTH - len(slave.put(b"short", TIMER_DELAY_SEC=5, p="v").properties)
    slave.put(b"long", TIMER_DELAY_SEC=5, p="v" * (1 + room))
    clock.advance(7)
    await slave.run()

    assert other.got == [b"short", b"long"]
    assert b"TIMER_DEQUEUE_MS" in other.properties[0]
    assert len(other.properties[1]) == MAX_SENT_PROPERTIES_LENGTH


async def test_nothing_is_sent_once_a_message_cannot_be_read(
    slave: Timer, store: MessageStore, other: OtherMaster, clock: FakeClock
):
    for body in (b"message 0", b"message 1", b"message 2"):
        slave.put(body, TIMER_DELAY_SEC=5)
    damage(store, 1)
    clock.advance(7)
    await slave.run()
    assert other.got == [], "the damaged one may cancel another"
    assert slave.service.progress.delivered == ()


async def test_progress_ends_before_a_message_that_was_damaged_since_it_was_read(
    slave: Timer, store: MessageStore, other: OtherMaster, clock: FakeClock, caplog: pytest.LogCaptureFixture
):
    for body in (b"message 0", b"message 1", b"message 2"):
        slave.put(body, TIMER_DELAY_SEC=5)
    slave.put(b"message 3", TIMER_DELAY_SEC=6)
    await slave.run()
    damage(store, 1)
    clock.advance(8)
    for _ in range(3):
        await slave.run()
    assert other.got == [b"message 0"]
    assert [offset for _, offset in slave.service.progress.delivered] == [1]
    assert caplog.text.count("timer messages wait for the master: this slave lacks message 1") == 1


async def test_a_damaged_cancel_stops_the_delivery_of_its_slot(
    slave: Timer, store: MessageStore, other: OtherMaster, clock: FakeClock
):
    slave.put(b"message", TIMER_DELAY_SEC=5, UNIQ_KEY="K")
    out_ms = clock.time_ms() + 5000
    slave.put(b"cancel  ", TIMER_DEL_UNIQKEY="K", TIMER_DELIVER_MS=out_ms, UNIQ_KEY="K")
    await slave.run()
    damage(store, 1)
    clock.advance(7)
    await slave.run()
    assert (other.got, slave.service.progress.delivered) == ([], ())


@pytest.mark.parametrize("properties", [{}, {"TIMER_DEL_UNIQKEY": "K"}])
async def test_a_message_that_is_not_due_yet_waits_with_all_after_it(
    again: Callable[..., Awaitable[Timer]], other: OtherMaster, clock: FakeClock, properties: dict[str, str]
):
    slave = await again(put=other.put, timer_roll_window_slot=10)
    slave.put(b"before", TIMER_DELAY_SEC=5)
    slave.put(b"far ahead", TIMER_DELAY_SEC=28, **properties)
    stored_ms = clock.time_ms()
    slave.put(b"after", TIMER_DELAY_SEC=9)
    clock.advance(5)
    slave.put(b"waits", TIMER_DELAY_SEC=8)
    clock.advance(30)
    for _ in range(2):
        await slave.run()
    assert other.got == [b"before", b"after"]
    assert all(before_ms <= stored_ms + 10_000 or offset <= 1 for before_ms, offset in slave.service.progress.delivered)


async def test_a_slave_that_began_late_sends_nothing_while_older_messages_may_wait(
    slave: Timer, store: MessageStore, other: OtherMaster, clock: FakeClock
):
    slave.put(b"missing", TIMER_DELAY_SEC=3)
    slave.put(b"first", TIMER_DELAY_SEC=3)
    begin_at(store, 1)
    clock.advance(5)
    window_ms = 172_800_000
    async with running(slave.service):
        await slave.run()
        await slave.service.remove_delivered_files()
        assert (other.got, slave.service.progress.delivered) == ([], ())

    begin_ms = clock.time_ms() - 5000
    slave.service.progress.follow(begin_ms + window_ms + 1001, 1, 1000, window_ms)
    async with running(slave.service):
        await until(lambda: other.got == [b"first"])
