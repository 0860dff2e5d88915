"""A seeded run of transactions over a recording file system, and what has to hold after a crash of it.

Each transaction has its true outcome from the start. After a crash the producers are asked for what is open, and answer
by it: then each committed message has to be there once, and no other.
"""

import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketbroker.broker.offset.consumer_offset_manager import OffsetRecovery
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.store.dispatch.commit_log_dispatcher import NoListener
from rocketbroker.store.message_store import MessageStore
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.recorded_script import OnDisk, Operation, RecordedScript, consumer_offsets, nothing_to_wait_for
from tests.support.recording_file_system import Loss
from tests.support.stores import V4_HOST, crash_copy, read_queue, store_config
from tests.support.transactions import COMMIT, HALF_TOPIC, ROLLBACK, Transactions

TOPIC = "T"
NEVER = 1_000_000
# More turns than any transaction needs.
MOST_TURNS = 100


class Sent(NamedTuple):
    """The half message of a transaction is in the log."""

    number: int


@dataclass
class Promised:
    """Promises of the marks up to a point."""

    sent: set[int] = field(default_factory=set)
    on_disk: set[int] = field(default_factory=set)

    def take(self, mark: object) -> None:
        """Apply one mark."""
        match mark:
            case Sent(number):
                self.sent.add(number)
            case OnDisk():
                self.on_disk = set(self.sent)


def outcome_of(number: int) -> int:
    """Return the outcome of a transaction; every third is rolled back."""
    return COMMIT if number % 3 else ROLLBACK


def number_of(message: MessageExt) -> int:
    """Return the transaction number of a message."""
    return int(message.uniq_key or "", 16)


async def started(root: Path, flush_disk_type: str, clock: FakeClock, file_system: FileSystem = LOCAL) -> Transactions:
    """Start on a folder as a broker does."""
    config = store_config(root / "store", flush_disk_type=flush_disk_type)
    offsets = consumer_offsets(config, clock, file_system)
    offsets.load()
    store = MessageStore(config, V4_HOST, NoListener(), clock, file_system)
    await store.start()
    await OffsetRecovery(offsets, store.queues, nothing_to_wait_for).start()
    found = Transactions(store, clock, offsets, transaction_check_max=NEVER)
    await found.recovery.run()
    return found


async def end_all(transactions: Transactions) -> None:
    """Check back all open transactions until they are ended."""
    producer = transactions.producer("who knows")
    queues = transactions.store.queues.queues_of(HALF_TOPIC)
    for _ in range(MOST_TURNS):
        if 0 not in queues or transactions.service.half_offsets.position == queues[0].max_offset:
            return
        await ask(transactions, producer)
    raise AssertionError(f"open after {MOST_TURNS} turns: {transactions.service.half_offsets}")


async def ask(transactions: Transactions, producer: FakeConnection, share: float = 1.0, seed: int = 0) -> None:
    """One turn of checks, a share of which is answered."""
    chance = random.Random(seed)
    await transactions.check(60.0)
    await transactions.store.flusher.sync()
    for half in transactions.asked(producer):
        if chance.random() < share:
            transactions.end(half, outcome_of(number_of(half)), oneway=True, from_transaction_check=True)
    await transactions.store.flusher.sync()


class TransactionCrashScript(RecordedScript[Promised]):
    """A run of transactions."""

    def __init__(self, root: Path, flush_disk_type: str, seed: int) -> None:
        super().__init__(root, flush_disk_type, seed)
        # Open transactions that producers know: the half message, and each copy they were asked about.
        self._known: dict[int, list[MessageExt]] = {}
        self._transactions: Transactions
        self._producer: FakeConnection

    @property
    def _running(self) -> MessageStore:
        return self._transactions.store

    def _weighted(self) -> list[tuple[Operation, int]]:
        return [
            (self._send, 35),
            (self._end, 30),
            (self._check, 6),
            (self._write_ops, 8),
            (self._write_offsets, 10),
            (self._sync, 8),
            (self._flush_queues, 4),
            (self._flush_index, 4),
            (self._restart, 2),
        ]

    async def _start(self) -> None:
        self._transactions = await started(self._root, self._flush_disk_type, self._clock, self.file_system)
        self._producer = self._transactions.producer("one")

    async def stop(self) -> None:
        """Stop cleanly."""
        await self._transactions.service.close()
        self._transactions.offsets.flush()
        await self._transactions.store.stop()
        self.file_system.mark(OnDisk())

    async def _send(self) -> None:
        number = next(self._numbers)
        self._clock.advance(self._chance.choice([0, 0.001, 3]))
        half = self._transactions.send(self._body(number), UNIQ_KEY=f"{number:032X}")
        self.file_system.mark(Sent(number))
        self._known[number] = [half]
        if self._flush_disk_type == "SYNC_FLUSH":
            await self._sync()

    async def _end(self) -> None:
        """A producer ends a transaction by any half message that it knows of it."""
        if not self._known:
            return
        number = self._chance.choice(list(self._known))
        half = self._chance.choice(self._known.pop(number))
        self._transactions.end(half, outcome_of(number), oneway=True)

    async def _check(self) -> None:
        await self._transactions.check(7.0)
        if self._flush_disk_type == "SYNC_FLUSH":
            await self._sync()
        for half in self._transactions.asked(self._producer):
            self._known[number_of(half)].append(half)

    async def _write_ops(self) -> None:
        self._transactions.service.write_ops()

    async def _write_offsets(self) -> None:
        self._transactions.service.keep_progress()
        self._transactions.offsets.flush()

    async def _sync(self) -> None:
        assert await self._transactions.store.flusher.sync()
        self.file_system.mark(OnDisk())

    async def check(self, root: Path, promised: Promised, loss: Loss, number: int) -> None:
        """Start after a crash, be killed during the answers, start again and compare all with the true outcomes."""
        clock = FakeClock(self._clock.time_ms() + 60_000)
        first = await started(root, self._flush_disk_type, clock)
        await ask(first, first.producer("one"), 0.5, seed=number)
        killed = crash_copy(root, root.with_name(f"{root.name}-killed"))
        await first.store.stop()
        again = await started(killed, self._flush_disk_type, clock)
        try:
            await end_all(again)
            _check_topic(again, promised, loss)
        finally:
            await again.close()
        shutil.rmtree(killed)


def _check_topic(transactions: Transactions, promised: Promised, loss: Loss) -> None:
    found = read_queue(transactions.store, TOPIC, 1)
    numbers = [number_of(each) for each in found]
    assert len(numbers) == len(set(numbers)), f"{numbers}: more than once"
    assert not [number for number in numbers if outcome_of(number) == ROLLBACK], f"{numbers}: rolled back"
    least = promised.sent if loss is Loss.NOTHING else promised.on_disk
    lost = {number for number in least if outcome_of(number) == COMMIT} - set(numbers)
    assert not lost, f"{lost} were sent, and their producers committed them"
    for number, each in zip(numbers, found, strict=True):
        assert each.body.startswith(b"%d " % number)
