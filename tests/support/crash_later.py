"""Delayed deliveries of a killed broker: the answers to CrashLater.java, compared with the log.

A message waits in the topic of its kind, and is copied to LATER_TOPIC once it is due or committed. Each copy is
compared with the waiting message: none is early, none is of a transaction that was rolled back, and one comes twice
only where the progress that the dead broker had on disk did not say that it was delivered.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from rocketbroker.codec.storefile.config_tables import loads_config
from tests.support.commit_log_follower import Found, Place

LATER_TOPIC: Final = "CrashLater"
HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
GIVEN_UP_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
SCHEDULE_TOPIC: Final = "SCHEDULE_TOPIC_XXXX"
TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
# Topic and queue where each kind of message waits.
DELAYED: Final = {"level1": (SCHEDULE_TOPIC, 0), "level2": (SCHEDULE_TOPIC, 1), "timer": (TIMER_TOPIC, 0)}
IN_TRANSACTION: Final = dict.fromkeys(("commit", "rollback", "unknown"), (HALF_TOPIC, 0))
WAITING_TOPICS: Final = {SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC}
# The client itself rolls a transaction back when its half message got this status.
ROLLED_BACK: Final = "FLUSH_DISK_TIMEOUT"
# Short intervals, so that kills come before, during and after each step of a message.
SETTINGS: dict[str, str | int] = {
    "transactionTimeOut": 1500, "transactionCheckInterval": 1000, "transactionCheckMax": 100_000,
    "transactionOpBatchInterval": 300, "flushDelayOffsetInterval": 300, "timerFlushIntervalMs": 300,
    "timerPrecisionMs": 100,
}  # fmt: skip


class Sent(NamedTuple):
    """One try of a producer to have its number n of a kind stored."""

    kind: str
    n: int
    attempt: int


class Copy(NamedTuple):
    """A delivered copy, and the broker process that delivered it, counted from 0."""

    life: int
    record: Found


@dataclass(slots=True)
class LaterLoad:
    """Answers to the clients, and contents of the log."""

    acknowledged: set[Sent] = field(default_factory=set)
    missed: dict[Sent, str] = field(default_factory=dict)
    taken: dict[Place, Sent] = field(default_factory=dict)
    waiting: dict[Sent, Found] = field(default_factory=dict)
    copies: dict[Sent, list[Copy]] = field(default_factory=dict)
    # Messages known to be delivered before the last kill: they never come again.
    settled: set[Sent] = field(default_factory=set)
    # Result of ``noted`` for the last killed broker.
    noted_before: tuple[int, int] = (0, 0)
    # By kind, what waited when a broker was killed.
    amid: Counter[str] = field(default_factory=Counter)
    breaks: list[str] = field(default_factory=list)
    half_end: int = 0

    # -- what the clients say

    def take_line(self, word: str, fields: list[str]) -> None:
        """Process a line of CrashLater.java."""
        if word == "PUT":
            self.acknowledged.add(_sent(fields))
        elif word == "MISS":
            self.missed[_sent(fields)] = fields[3]
        elif word == "TOOK":
            place = Place(LATER_TOPIC, int(fields[0]), int(fields[1]))
            known = self.taken.setdefault(place, _sent(fields[2:]))
            if known != _sent(fields[2:]):
                self.breaks.append(f"{place} was {known} and is {fields[2:]}")

    def progress(self) -> tuple[int, int]:
        """Return the numbers of acknowledged delayed messages and half messages."""
        transactions = sum(each.kind in IN_TRANSACTION for each in self.acknowledged)
        return len(self.acknowledged) - transactions, transactions

    # -- what the log says

    def take_record(self, record: Found, life: int) -> None:
        """Take a record of the log that the broker's process number ``life`` has written."""
        topic, queue_id, offset = record.place
        assert topic != GIVEN_UP_TOPIC, f"{record} was given up"
        if topic in WAITING_TOPICS:
            sent = _of_body(record.body)
            assert (DELAYED | IN_TRANSACTION)[sent.kind] == (topic, queue_id), f"{sent} waits at {record.place}"
            assert topic == HALF_TOPIC or sent not in self.waiting, f"{sent} waits twice, at {record.place}"
            self.waiting.setdefault(sent, record)
            if topic == HALF_TOPIC:
                self.half_end = max(self.half_end, offset + 1)
        elif topic == LATER_TOPIC:
            self._take_copy(_of_body(record.body), Copy(life, record))

    def _take_copy(self, sent: Sent, copy: Copy) -> None:
        assert sent in self.waiting, f"{sent} was delivered and had not waited: {copy}"
        waited = self.waiting[sent]
        copies = self.copies.setdefault(sent, [])
        assert copy.record.body == waited.body
        assert sent.kind != "rollback", f"{sent} was rolled back and is at {copy.record.place}"
        if sent.kind in IN_TRANSACTION:
            assert not copies, f"{sent} was committed twice: {copies}, {copy}"
        assert copy.record.store_timestamp >= _due_ms(sent, waited), f"{sent} is early: {waited}, {copy}"
        assert not copies or copies[-1].life < copy.life, f"{sent} came twice from one process: {copies}, {copy}"
        assert sent not in self.settled, f"{sent} was delivered, on disk, and known to be: {copies}, {copy}"
        copies.append(copy)

    # -- what must hold

    def check_killed(self, store: Path) -> None:
        """Check that a dead broker's log has all acknowledged messages and all it had noted as delivered."""
        assert self.breaks == []
        assert self.lost() == set(), "acknowledged, and not stored"
        self.amid.update(sent.kind for sent in self.waiting.keys() - self.copies.keys() if sent.kind != "rollback")
        self.noted_before = noted(store)
        is_delivered = delivered_by_progress(store)
        delivered = {sent for sent, record in self.waiting.items() if is_delivered(record)}
        assert delivered <= self.copies.keys(), "delivered by the progress on disk, and in no topic"
        self.settled |= delivered

    def is_complete(self, half_offset: int) -> bool:
        """Return true if all messages have reached the consumer and each transaction is ended."""
        places = {copy.record.place for copies in self.copies.values() for copy in copies}
        return self._to_come() <= self.copies.keys() and places <= self.taken.keys() and half_offset == self.half_end

    def _to_come(self) -> set[Sent]:
        return {
            sent
            for sent in self.waiting
            if sent.kind in DELAYED or (sent.kind != "rollback" and self.missed.get(sent) != ROLLED_BACK)
        }

    def check_all(self) -> None:
        """Check that the delivered messages are those sent, and that each kind was delivered over kills."""
        assert self.breaks == []
        delayed = {sent for sent in self.waiting if sent.kind in DELAYED}
        assert delayed == self.settled, "after a stop in order nothing would be delivered once more"
        assert self.taken == {copy.record.place: sent for sent, copies in self.copies.items() for copy in copies}, (
            "what the consumer was given is what the log holds"
        )
        unexplained = self.waiting.keys() - self.acknowledged - self.missed.keys()
        assert unexplained == set(), "stored, and neither acknowledged nor refused"
        assert self.amid.keys() >= DELAYED.keys() | {"unknown"}, f"not all kinds waited when it was killed: {self.amid}"

    def lost(self) -> set[Sent]:
        """Return the acknowledged sends that are missing in the log."""
        return self.acknowledged - self.waiting.keys()

    def early(self) -> list[Copy]:
        """Return the copies that were stored before their message was due."""
        return [
            copy
            for sent, copies in self.copies.items()
            for copy in copies
            if copy.record.store_timestamp < _due_ms(sent, self.waiting[sent])
        ]

    def summary(self) -> str:
        """Return the counts of the run, in one line."""
        twice = sum(len(copies) - 1 for copies in self.copies.values())
        return (
            f"{len(self.acknowledged)} delayed or in transactions acknowledged, {len(self.lost())} lost, "
            f"{len(self.early())} early, {len(self.missed)} "
            f"sends failed, {len(self.copies)} delivered, {twice} copies more after a kill; waiting at kills: "
            f"{dict(self.amid)}"
        )


def _sent(fields: list[str]) -> Sent:
    return Sent(fields[0], int(fields[1]), int(fields[2]))


def _of_body(body: bytes) -> Sent:
    return _sent(body.decode().split(" ", 3)[:3])


def _due_ms(sent: Sent, waited: Found) -> int:
    """Before this time it may not be delivered: a level counts from the storing, a timer's delay from the birth."""
    delay_ms = int(waited.body.split(b" ", 4)[3])
    return (waited.born_timestamp if sent.kind == "timer" else waited.store_timestamp) + delay_ms


def noted(store: Path) -> tuple[int, int]:
    """Return the progress by its files: messages delivered by levels, and offset in the timer's queue."""
    levels = _table(store, "delayOffset.json").get("offsetTable", {})
    timers = _table(store, "timerProgress.json").get("delivered", [])
    return sum(map(int, levels.values())), max((int(end) for _, end in timers), default=0)


def delivered_by_progress(store: Path) -> Callable[[Found], bool]:
    """Says of a message that waits whether the files of progress tell that it is delivered."""
    levels = _table(store, "delayOffset.json").get("offsetTable", {})
    level_ends = {int(level): int(end) for level, end in levels.items()}
    timers = [(int(slot), int(end)) for slot, end in _table(store, "timerProgress.json").get("delivered", [])]

    def is_delivered(record: Found) -> bool:
        topic, queue_id, offset = record.place
        if topic == SCHEDULE_TOPIC:
            return offset < level_ends.get(queue_id + 1, 0)
        slot = int(record.property("TIMER_OUT_MS") or 0)
        return topic == TIMER_TOPIC and any(slot < before and offset < end for before, end in timers)

    return is_delivered


def _table(store: Path, name: str) -> dict[Any, Any]:
    path = store / "config" / name
    return loads_config(path.read_bytes()) if path.is_file() else {}
