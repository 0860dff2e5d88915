"""Java producers and consumers that outlive our broker: the answers they got, compared with its store."""

import random
import re
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.support import crash_later
from tests.support.commit_log_follower import CommitLogFollower, Found, Place, check_queues
from tests.support.crash_later import HALF_TOPIC, LATER_TOPIC, LaterLoad
from tests.support.java import Java
from tests.support.java_process import JavaProcess
from tests.support.our_servers import OurServer, OurServers, make_topic, wait_serving
from tests.support.store_audit import check_store

TOPIC = "Crash"
QUEUES = 4
PRODUCERS = 4
TRANSACTION_GROUP = "CID_RMQ_SYS_TRANS"
# Those whose offsets must not be beyond the end of a queue after a kill.
GROUPS = {f"CG_{TOPIC}", f"CG_{LATER_TOPIC}", TRANSACTION_GROUP}
PROGRESS_LIMIT_S = 120.0
# Small files, so that a run rolls many, and tables written often, so that kills come during writes.
SETTINGS: dict[str, str | int] = {
    "mappedFileSizeCommitLog": 4 << 20, "mappedFileSizeConsumeQueue": 20 * 1000, "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000, "flushConsumerOffsetInterval": 100, "flushIntervalConsumeQueue": 200,
}  # fmt: skip
# Asked for often, so that the consumers are at work again soon after each start.
JAVA_PROPERTIES = {"rocketmq.client.rebalance.waitInterval": "500", "rocketmq.client.rebalance.lockInterval": "500"}
LONGEST_WAIT_S = 0.6
BOOT_KILL_SHARE = 0.1
# So that the two cores have time for the others.
PAUSE_MILLIS_BESIDE_LATER = 5


class Attempt(NamedTuple):
    """One try of a producer to have its number n stored."""

    producer: int
    n: int
    attempt: int


@dataclass(slots=True)
class Journal:
    """Output of CrashLoad.java, read as it grows; ``later`` takes the lines of CrashLater.java."""

    path: Path
    later: LaterLoad | None
    position: int = 0
    acknowledged: dict[Attempt, Place] = field(default_factory=dict)
    failed: dict[Attempt, str] = field(default_factory=dict)
    first_arrivals: dict[Place, Attempt] = field(default_factory=dict)
    arrived: Counter[int] = field(default_factory=Counter)
    got: int = 0
    # Last offset that each consumer had of each queue, and the places where one got an earlier message again.
    latest: dict[tuple[int, int], int] = field(default_factory=dict)
    steps_back: list[str] = field(default_factory=list)
    produced: bool = False
    breaks: list[str] = field(default_factory=list)

    def read_on(self) -> None:
        """Process the complete new lines."""
        with self.path.open("rb") as file:
            file.seek(self.position)
            data = file.read()
        data = data[: data.rfind(b"\n") + 1]
        self.position += len(data)
        for line in data.decode(errors="replace").splitlines():
            word, *fields = line.split("\t")
            self._take(word, fields)

    def _take(self, word: str, fields: list[str]) -> None:
        if word == "ACK":
            producer, n, attempt, queue_id, offset = map(int, fields)
            self.acknowledged[Attempt(producer, n, attempt)] = Place(TOPIC, queue_id, offset)
        elif word == "FAIL":
            self.failed[Attempt(*map(int, fields[:3]))] = fields[3]
        elif word == "GOT":
            consumer, producer, n, attempt, queue_id, offset = map(int, fields)
            self._follow(consumer, queue_id, offset)
            self._arrive(Place(TOPIC, queue_id, offset), Attempt(producer, n, attempt))
        elif word == "BAD":
            self.breaks.append(f"a body that nobody sent: {fields}")
        elif word == "PRODUCED":
            self.produced = True
        elif self.later is not None:
            self.later.take_line(word, fields)

    def _follow(self, consumer: int, queue_id: int, offset: int) -> None:
        if offset <= (latest := self.latest.get((consumer, queue_id), -1)):
            self.steps_back.append(f"consumer {consumer} got offset {offset} of queue {queue_id} after {latest}")
        self.latest[consumer, queue_id] = offset

    def _arrive(self, place: Place, attempt: Attempt) -> None:
        """Check that a place never changes its message and is first seen after its predecessor."""
        self.got += 1
        known = self.first_arrivals.setdefault(place, attempt)
        if known != attempt:
            self.breaks.append(f"{place} was {known} and is {attempt}")
        expected = self.arrived[place.queue_id]
        if place.queue_offset > expected:
            self.breaks.append(f"{place} came before offset {expected} of its queue")
        elif place.queue_offset == expected:
            self.arrived[place.queue_id] += 1


@dataclass(slots=True)
class CrashLoad:
    """One broker that is killed again and again under the load of one JVM.

    Args:
        servers: starts the broker.
        java: starts the JVM.
        seed: of the moments at which the broker is killed.
        listener: ``orderly`` or ``concurrent``.
        settings: of the broker, beside ``SETTINGS``.
        later: where there are to be messages besides that are delivered later.
    """

    servers: OurServers
    java: Java
    seed: int
    listener: str
    settings: dict[str, str | int]
    later: LaterLoad | None = None
    namesrv: OurServer = field(init=False)
    broker: OurServer = field(init=False)
    clients: JavaProcess = field(init=False)
    journal: Journal = field(init=False)
    follower: CommitLogFollower = field(init=False)
    _random: random.Random = field(init=False)
    cycles: int = 0
    boots_killed: int = 0
    launches: int = 1
    stored: dict[Attempt, Place] = field(default_factory=dict)

    def start(self) -> None:
        """Start the servers and the clients."""
        self._random = random.Random(self.seed)
        of_later = crash_later.SETTINGS if self.later is not None else {}
        self.settings = {**SETTINGS, **of_later, **self.settings}
        self.namesrv = self.servers.namesrv()
        self.broker = self.servers.launch_broker(self.namesrv.address, None, self.settings)
        wait_serving(self.broker, self.namesrv.address)
        make_topic(self.broker.address, self.namesrv.address, TOPIC, QUEUES)
        self.follower = CommitLogFollower(self.broker.store, int(self.settings["mappedFileSizeCommitLog"]))
        given = [f"namesrv={self.namesrv.address}", f"topic={TOPIC}", f"listener={self.listener}"]
        given += [f"stopFile={self._stop_file}", f"producers={PRODUCERS}"]
        if self.later is not None:
            make_topic(self.broker.address, self.namesrv.address, LATER_TOPIC, QUEUES)
            given += [f"later={LATER_TOPIC}", f"pauseMillis={PAUSE_MILLIS_BESIDE_LATER}"]
        self.clients = self.java.start("CrashLoad", *given, properties=JAVA_PROPERTIES)
        self.journal = Journal(self.clients.log, self.later)

    @property
    def _stop_file(self) -> Path:
        return self.servers.home / "stop"

    def cycle(self) -> None:
        """Wait until all are at work, kill the broker at a random moment, check its store and restart it."""
        self._wait_at_work()
        time.sleep(self._random.uniform(0, LONGEST_WAIT_S))  # no condition: the moment of the kill is the test
        self.broker.kill()
        self.cycles += 1
        self.check()
        if self._random.random() < BOOT_KILL_SHARE:
            self._kill_while_it_boots()
            self.check()
        self.broker = self._launch()
        wait_serving(self.broker, self.namesrv.address)

    def _launch(self) -> OurServer:
        self._expect_no_errors()
        self.servers.started.remove(self.broker)
        self.launches += 1
        return self.servers.launch_broker(self.namesrv.address, self.broker.store, self.settings, port=self.broker.port)

    def _kill_while_it_boots(self) -> None:
        self.broker = self._launch()
        time.sleep(self._random.uniform(0, 1.5))  # as above; on most machines it is up after about one second
        self.broker.kill()
        self.boots_killed += 1

    def _wait_at_work(self) -> None:
        self.journal.read_on()
        got = self.journal.got
        before = set(self.journal.acknowledged)
        later_at_work = self._later_at_work()

        def at_work() -> bool:
            new = self.journal.acknowledged.keys() - before
            return len({each.producer for each in new}) == PRODUCERS and self.journal.got > got and later_at_work()

        self._until(at_work, "all producers were acknowledged and a consumer took a message")

    def _later_at_work(self) -> Callable[[], bool]:
        """Says whether its producers were acknowledged since now, and, each other time, its deliveries noted."""
        later = self.later
        if later is None:
            return lambda: True
        delayed, transactions = later.progress()
        levels, timers = later.noted_before if self.cycles % 2 == 0 else (-1, -1)

        def at_work() -> bool:
            now, noted = later.progress(), crash_later.noted(self.broker.store)
            return now[0] > delayed and now[1] > transactions and noted[0] > levels and noted[1] > timers

        return at_work

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PROGRESS_LIMIT_S
        self.journal.read_on()
        while not condition():
            assert self.clients.process.poll() is None, f"the clients ended:\n{self.clients.text()[-2000:]}"
            assert self.broker.process.poll() is None, f"the broker ended:\n{self.broker.text()[-2000:]}"
            assert time.monotonic() < deadline, f"cycle {self.cycles}, {what}: not within {PROGRESS_LIMIT_S} s"
            time.sleep(0.02)
            self.journal.read_on()

    def check(self) -> None:
        """Check the dead broker's files: all acknowledged messages in order, no offset beyond the end."""
        self.journal.read_on()
        self._read_stored()
        check_queues(self.follower)
        where = f"cycle {self.cycles}"
        assert self.journal.breaks == [], where
        assert self.lost() == {}, f"{where}: acknowledged, and not stored where the producer was told"
        ends = self.follower.ends()
        for (topic, queue_id), offset in committed_offsets(self.broker.store).items():
            assert offset <= ends.get((topic, queue_id), 0), f"{where}: committed beyond the end of {topic} {queue_id}"
        if self.later is not None:
            self.later.check_killed(self.broker.store)
        check_store(self.broker.store)

    def _read_stored(self) -> None:
        for record in self.follower.read_on():
            if record.place.topic == TOPIC:
                self._take_stored(record)
            elif self.later is not None:
                self.later.take_record(record, self.launches)

    def _take_stored(self, record: Found) -> None:
        attempt = Attempt(*map(int, record.body.split(b" ", 3)[:3]))
        assert attempt not in self.stored, f"{attempt} is at {self.stored[attempt]} and at {record.place}"
        self.stored[attempt] = record.place

    def _expect_no_errors(self) -> None:
        found = [
            line for line in self.broker.lines() if any(word in line for word in ("ERROR", "CRITICAL", "Traceback"))
        ]
        assert found == [], f"cycle {self.cycles}"

    def finish(self) -> None:
        """Let producers finish and consumers drain, stop the broker cleanly and check everything again."""
        self._stop_file.touch()
        self._until(lambda: self.journal.produced, "the producers ended")
        # The broker has all acknowledged messages, and those it stored but could not acknowledge.
        self._until(self._all_arrived, "the consumers have all messages")
        self.clients.kill()
        self.broker.stop()
        self.check()
        whole = CommitLogFollower(self.broker.store, self.follower.file_size)
        whole.read_on()
        assert whole.records == self.follower.records, "the log is not what it was when it was first read"
        assert order_breaks(self.stored) == []
        self._check_repeats()
        assert self.journal.first_arrivals == {place: attempt for attempt, place in self.stored.items()}
        assert self.journal.acknowledged.keys() <= set(self.journal.first_arrivals.values())
        if self.later is not None:
            self.later.check_all()

    def _all_arrived(self) -> bool:
        self._read_stored()
        if sum(self.journal.arrived.values()) < len(self.stored):
            return False
        return self.later is None or self.later.is_complete(self._half_offset())

    def _half_offset(self) -> int:
        """Return the half message offset up to which all transactions are ended, from the broker's files."""
        return committed_offsets(self.broker.store).get((HALF_TOPIC, 0), 0)

    def _check_repeats(self) -> None:
        """Check that only unacknowledged attempts are stored more than once."""
        unacknowledged = self.stored.keys() - self.journal.acknowledged.keys()
        unexplained = unacknowledged - self.journal.failed.keys()
        assert unexplained == set(), "stored, and neither acknowledged nor refused"

    def lost(self) -> dict[Attempt, Place]:
        """Return the acknowledged sends that are missing at their acknowledged place in the log."""
        return {
            attempt: place for attempt, place in self.journal.acknowledged.items() if self.stored.get(attempt) != place
        }

    def summary(self) -> str:
        """Return the counts of the run, in one line."""
        repeats = self.journal.got - len(self.journal.first_arrivals)
        unacknowledged = len(self.stored.keys() - self.journal.acknowledged.keys())
        breaks = len(order_breaks(self.stored)) + len(self.journal.breaks)
        return (
            f"{self.cycles} cycles and {self.boots_killed} kills amid a start, seed {self.seed}: "
            f"{len(self.journal.acknowledged)} acknowledged, {len(self.lost())} lost, "
            f"{breaks} order breaks, {len(self.journal.failed)} sends failed, "
            f"{unacknowledged} of them stored all the same, {repeats} deliveries repeated"
        ) + (f"; {self.later.summary()}" if self.later is not None else "")


def order_breaks(stored: dict[Attempt, Place]) -> list[str]:
    """Return the places where a producer's numbers are out of order or in the wrong queue."""
    breaks: list[str] = []
    last: dict[tuple[int, int], int] = {}
    for attempt, place in sorted(stored.items(), key=lambda item: item[1]):
        if place.queue_id != attempt.n % QUEUES:
            breaks.append(f"{attempt} is at {place}")
        key = place.queue_id, attempt.producer
        expected = last.get(key, attempt.n - QUEUES if attempt.n < QUEUES else -1)
        if attempt.n not in {expected, expected + QUEUES}:
            breaks.append(f"{attempt} at {place} follows number {expected}")
        last[key] = attempt.n
    return breaks


_TABLE = re.compile(r'"([^"@]+)@([^"@]+)"\s*:\s*\{([^}]*)\}')
_OFFSET = re.compile(r'"?(\d+)"?\s*:\s*(\d+)')


def committed_offsets(store: Path) -> dict[tuple[str, int], int]:
    """Return the offsets in ``consumerOffset.json`` of the test's groups, one for each topic, by topic and queue."""
    path = store / "config" / "consumerOffset.json"
    if not path.is_file():
        return {}
    return {
        (topic, int(queue_id)): int(offset)
        for topic, group, table in _TABLE.findall(path.read_text())
        if group in GROUPS
        for queue_id, offset in _OFFSET.findall(table)
    }
