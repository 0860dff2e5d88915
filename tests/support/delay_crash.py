"""A seeded run of delayed and timer messages over a recording file system, and what has to hold after a crash of it.

After a crash, and a kill amid what follows it, all that was on disk is delivered, nothing is early, and what the
progress on disk said to be delivered does not come again.
"""

import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.persist.config_manager import AnyConfigManager
from rocketbroker.broker.schedule_message_service import ScheduleMessageService
from rocketbroker.broker.timer.timer_message_store import TimerMessageStore
from rocketbroker.broker.timer.timer_progress import TimerProgress
from rocketbroker.broker.timer.timer_rewrite import HandleScheduleMessage
from rocketbroker.broker.waiting_messages import CopyDelivery
from rocketbroker.codec.message.message_const import parse_delay_levels
from rocketbroker.common.atomic_file import replace_contents
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock
from tests.support.recorded_script import OnDisk, Operation, RecordedScript, nothing_to_wait_for
from tests.support.recording_file_system import Loss
from tests.support.stores import V4_HOST, crash_copy, message, read_queue, store_config

TOPIC = "T"
QUEUE_ID = 1
LEVELS = {1: 1000, 2: 5000, 5: 60_000}
# The last two are further ahead than the window, and are stored again on the way.
DELAYS_MS = (300, 5000, 61_000, 400_000, 1_300_000)
ROLL_WINDOW_S = 300
# Until all that waits has had its turn, in steps.
STEP_S, STEPS = 100, 18
# From one crash and one kill.
MOST_COPIES = 3


class Delay(NamedTuple):
    """Return a message's due time in ms, and true if a level decides it."""

    due_ms: int
    by_level: bool


class Sent(NamedTuple):
    """A message is in the log, and waits."""

    number: int


class Noted(NamedTuple):
    """The progress on disk says that these are delivered."""

    numbers: frozenset[int]


class At(NamedTuple):
    """The clock shows this time, in ms."""

    time_ms: int


@dataclass
class Promised:
    """Promises of the marks up to a point."""

    sent: set[int] = field(default_factory=set)
    on_disk: set[int] = field(default_factory=set)
    noted: frozenset[int] = frozenset()
    time_ms: int = field(default_factory=lambda: FakeClock().time_ms())

    def take(self, mark: object) -> None:
        """Apply one mark."""
        match mark:
            case Sent(number):
                self.sent.add(number)
            case OnDisk():
                self.on_disk = set(self.sent)
            case Noted(numbers):
                self.noted = numbers
            case At(time_ms):
                self.time_ms = time_ms


class Delays:
    """A store, and the two services that deliver what waits in it.

    Args:
        store: started.
        clock: decides which messages are due.
        file_system: the disk.
    """

    def __init__(self, store: MessageStore, clock: FakeClock, file_system: FileSystem) -> None:
        def write(table: AnyConfigManager) -> None:
            replace_contents(table.path, table.encode(), file_system)

        self.store = store
        config = store.config
        copies = CopyDelivery(store.appender, store.entry_reader, BrokerStatsManager(clock, "C"), V4_HOST)
        self.schedule = ScheduleMessageService(
            config.config_dir / "delayOffset.json",
            copies,
            store.queues,
            store.flusher,
            delay_levels=parse_delay_levels(config.message_delay_level),
            clock=clock,
            on_persist=write,
        )
        self.timer = TimerMessageStore(
            config,
            copies,
            store.queues,
            store.flusher,
            TimerProgress(config.config_dir / "timerProgress.json", store.flusher, write),
            nothing_to_wait_for,
            clock=clock,
            file_system=file_system,
        )
        self._rewrite = HandleScheduleMessage(config, clock, self.schedule.max_delay_level, self._precision_ms)

    def _precision_ms(self) -> int:
        return self.timer.precision_ms

    async def load(self) -> None:
        """Load the files, as a start does."""
        self.schedule.load()
        self.schedule.correct_delay_offset()
        self.timer.progress.load()
        await self.timer.load()
        self.timer.progress.flush()

    def send(self, body: bytes, **properties: str) -> None:
        """Store a message where it waits."""
        waiting = message(body, TOPIC, QUEUE_ID, properties=properties)
        self._rewrite(waiting)
        assert waiting.topic != TOPIC
        assert self.store.appender.put_message(waiting).status is PutMessageStatus.PUT_OK
        self.store.appender.dispatch()

    async def run(self) -> None:
        """Deliver all that is due."""
        while await self.timer.advance() == 0.0 or await self.schedule.deliver_due() == 0.0:
            pass

    async def sync(self) -> None:
        """Bring the log to disk, and make readable what waited for that."""
        assert await self.store.flusher.sync()
        self.store.appender.dispatch()

    def note(self) -> None:
        """Write what progress may be written."""
        self.schedule.flush()
        self.timer.progress.flush()

    def delivered(self) -> list[tuple[int, int]]:
        """Return the number and store time of all that consumers find."""
        found = read_queue(self.store, TOPIC, QUEUE_ID)
        return [(int(each.body.split(b" ", 1)[0]), each.store_timestamp) for each in found]

    async def stop(self) -> None:
        """Stop cleanly."""
        await self.timer.stop()
        await self.schedule.stop()
        await self.store.stop()


async def started(root: Path, flush_disk_type: str, clock: FakeClock, file_system: FileSystem = LOCAL) -> Delays:
    """Start on a folder as a broker does."""
    config = store_config(root / "store", flush_disk_type=flush_disk_type, timer_roll_window_slot=ROLL_WINDOW_S)
    store = MessageStore(config, V4_HOST, NoListener(), clock, file_system)
    await store.start()
    found = Delays(store, clock, file_system)
    await found.load()
    return found


class DelayCrashScript(RecordedScript[Promised]):
    """A run of delayed and timer messages."""

    def __init__(self, root: Path, flush_disk_type: str, seed: int) -> None:
        super().__init__(root, flush_disk_type, seed)
        self._sent: dict[int, Delay] = {}
        self._delays: Delays

    @property
    def _running(self) -> MessageStore:
        return self._delays.store

    def _weighted(self) -> list[tuple[Operation, int]]:
        return [
            (self._send, 35),
            (self._wait, 25),
            (self._write_progress, 8),
            (self._note, 6),
            (self._write_slots, 6),
            (self._remove_slot_files, 3),
            (self._sync, 6),
            (self._flush_queues, 4),
            (self._restart, 2),
        ]

    async def _start(self) -> None:
        self._delays = await started(self._root, self._flush_disk_type, self._clock, self.file_system)

    async def stop(self) -> None:
        """Stop cleanly."""
        await self._note()
        await self._delays.stop()
        self.file_system.mark(OnDisk())

    def _advance(self, seconds: float) -> None:
        self._clock.advance(seconds)
        self.file_system.mark(At(self._clock.time_ms()))

    async def _send(self) -> None:
        number, now = next(self._numbers), self._clock.time_ms()
        body = self._body(number)
        if self._chance.random() < 0.5:
            level, delay_ms = self._chance.choice(list(LEVELS.items()))
            self._sent[number] = Delay(now + delay_ms, by_level=True)
            self._delays.send(body, DELAY=str(level))
        else:
            delay_ms = self._chance.choice(DELAYS_MS) + self._chance.randrange(3000)
            self._sent[number] = Delay(now + delay_ms, by_level=False)
            self._delays.send(body, TIMER_DELAY_MS=str(delay_ms))
        self.file_system.mark(Sent(number))
        if self._flush_disk_type == "SYNC_FLUSH":
            await self._sync()

    async def _wait(self) -> None:
        now = self._clock.time_ms()
        still_to_come = [delay.due_ms for delay in self._sent.values() if delay.due_ms > now]
        # A millisecond before one is due it must not come.
        just_before = (min(still_to_come) - 1 - now) / 1000 if still_to_come else 0.0
        self._advance(self._chance.choice([just_before, 0.3, 2, 30, 200]))
        await self._delays.run()

    async def _write_progress(self) -> None:
        self._delays.note()

    async def _note(self) -> None:
        """Write the progress when all of it may be written."""
        await self._sync()
        self._delays.note()
        self.file_system.mark(Noted(frozenset(number for number, _ in self._delays.delivered())))

    async def _write_slots(self) -> None:
        await self._delays.timer.write()
        self.file_system.mark(OnDisk())

    async def _remove_slot_files(self) -> None:
        await self._delays.timer.remove_delivered_files()

    async def _sync(self) -> None:
        await self._delays.sync()
        self.file_system.mark(OnDisk())

    async def check(self, root: Path, promised: Promised, loss: Loss, number: int) -> None:
        """Start after a crash, be killed during deliveries, start again, and compare all with the sent messages."""
        clock = FakeClock(promised.time_ms)
        first = await started(root, self._flush_disk_type, clock)
        clock.advance(2)
        await first.run()
        killed = crash_copy(root, root.with_name(f"{root.name}-killed"))
        await first.stop()
        again = await started(killed, self._flush_disk_type, clock)
        try:
            for _ in range(STEPS):
                clock.advance(STEP_S)
                await again.run()
                await again.sync()
            self._check_delivered(again.delivered(), promised, loss)
        finally:
            await again.stop()
        shutil.rmtree(killed)

    def _check_delivered(self, delivered: list[tuple[int, int]], promised: Promised, loss: Loss) -> None:
        copies = Counter(number for number, _ in delivered)
        least = promised.sent if loss is Loss.NOTHING else promised.on_disk
        assert least <= copies.keys(), f"{least - copies.keys()} were sent and are lost"
        early = [(number, stored) for number, stored in delivered if stored < self._sent[number].due_ms]
        assert not early, f"{early} are early: {self._sent}"
        again = {number for number in promised.noted if copies[number] != 1}
        assert not again, f"{again} were noted as delivered and came again: {copies}"
        many = {number for number, count in copies.items() if self._sent[number].by_level and count > MOST_COPIES}
        assert not many, f"{many} came more often than there were crashes: {copies}"
