"""A name server, a synchronous master and its slave under load, and the history that their faults must leave whole.

At any time both brokers have each acknowledged message at the place that its sender was told. At the end

- both logs have the same bytes, without a queue offset that is used twice or left out;
- the acknowledged messages of a producer are in order within a queue, and each attempt is stored once at most;
- the consumer got each message of the log, none before an earlier one of its queue, and none that is not in the log.
"""

import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from tests.support import faulty_sync
from tests.support.clocked_broker import MODULE, ClockedBroker
from tests.support.commit_log_follower import CommitLogFollower, Found, Place
from tests.support.crash_load import PRODUCERS, QUEUES, TOPIC, Attempt, Journal, committed_offsets
from tests.support.java import Java
from tests.support.machines import MASTER, NAMESRV, SLAVE, SPARE, Machines
from tests.support.our_servers import BOOTED, OurServer, OurServers, make_topic, wait_serving
from tests.support.private_disk import PrivateDisk
from tests.support.python_load import PythonLoad
from tests.support.replicated_logs import same_logs
from tests.support.waiting import wait_until

LOG_FILE = 4 << 20
DISK_SIZE = 96 << 20
PROGRESS_LIMIT_S = 120.0
# Acknowledged messages that show that all is at work.
_PROGRESS = 20
_CHUNK = 1 << 20
# Of disks whose errors a test makes.
_DISK_ERRORS = ("No space left on device", "Input/output error")
# Small files, a short wait for slaves, and tables written often. No file is removed: the checks read the whole log.
BROKER: dict[str, str | int] = {
    "mappedFileSizeCommitLog": LOG_FILE, "mappedFileSizeConsumeQueue": 20_000, "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000, "flushDiskType": "SYNC_FLUSH", "flushConsumerOffsetInterval": 200, "slaveReadEnable": "true",
    "cleanFileForciblyEnable": "false", "autoCreateTopicEnable": "false",
}  # fmt: skip
MASTER_ROLE: dict[str, str | int] = {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 1000}
SLAVE_ROLE: dict[str, str | int] = {"brokerRole": "SLAVE", "brokerId": 1}


class Load(Protocol):
    """Clients whose lines a ``Journal`` reads."""

    @property
    def is_alive(self) -> bool: ...

    def stop_sending(self) -> None:
        """End the producers, each once its message is acknowledged."""

    def close(self) -> None:
        """End all clients."""


class JavaLoad:
    """The official client, in one JVM (CrashLoad.java)."""

    def __init__(self, java: Java, namesrv: str) -> None:
        self._stop_file = java.home / "stop"
        self.process = java.start(
            "CrashLoad", f"namesrv={namesrv}", f"topic={TOPIC}", f"stopFile={self._stop_file}", "listener=concurrent",
            f"producers={PRODUCERS}", "consumers=1", "pauseMillis=5", "pollNameServer=1000",
            properties={"rocketmq.client.rebalance.waitInterval": "500"},
        )  # fmt: skip

    @property
    def is_alive(self) -> bool:
        return self.process.process.poll() is None

    def stop_sending(self) -> None:
        """End the producers, each once its message is acknowledged."""
        self._stop_file.touch()

    def close(self) -> None:
        """End the JVM."""
        self.process.kill()


class Role(NamedTuple):
    """A broker of the cluster; ``store`` is its folder as it sees it, ``seen`` as this process does."""

    servers: OurServers
    settings: dict[str, str | int]
    port: int
    store: Path
    seen: Path


class FaultCluster:
    """The servers, what they acknowledged, and the checks.

    Args:
        machines: where they run.
        home: folder for what this process writes.
        disk: a small disk for the slave, if there is one.
        seed: of all that is random.
        settings: settings of both brokers, beside ``BROKER``.
    """

    def __init__(
        self,
        machines: Machines,
        home: Path,
        disk: PrivateDisk | None,
        seed: int,
        settings: dict[str, str | int],
    ) -> None:
        self.machines = machines
        self.disk = disk
        self.random = random.Random(seed)
        self._home = home
        self._slave_sync_mark = home / "slave-sync"
        self._all = {name: machines.servers(name) for name in (NAMESRV, MASTER, SLAVE, SPARE)}
        self._settings = {**BROKER, **machines.settings, **settings}
        self._started: list[OurServer] = []
        self._followers: dict[str, CommitLogFollower] = {}
        self.master_role, self.slave_role = self._master_role(), self._slave_role()
        self.namesrv: OurServer
        self.master: ClockedBroker
        self.slave: ClockedBroker
        self.load: Load
        self.journal: Journal

    def start_servers(self) -> None:
        """Start name server, master and slave, and create the topic."""
        self.namesrv = self._all[NAMESRV].namesrv(**self.machines.settings)
        self.master = self.start(self.master_role)
        self.slave = self.start(self.slave_role)
        self.make_topic()

    def _master_role(self) -> Role:
        servers = self._all[MASTER]
        store = servers.home / "store"
        return Role(servers, MASTER_ROLE, self.machines.master_port, store, store)

    def _slave_role(self) -> Role:
        servers, settings = self._all[SLAVE], {**SLAVE_ROLE, **self.machines.slave_settings}
        store = seen = servers.home / "store"
        if self.disk is not None:
            store, seen = self.disk.path / "store", self.disk.seen_from_here / "store"
            servers.runner = [*servers.runner, *self.disk.runner]
        servers.runner = [*servers.runner, *faulty_sync.runner(self._slave_sync_mark)]
        return Role(servers, settings, 0, store, seen)

    def spare_role(self, **settings: str | int) -> Role:
        """Return a role for one more broker, with an empty store."""
        servers = self._all[SPARE]
        store = servers.home / f"store-{len(servers.started)}"
        return Role(servers, settings, 0, store, store)

    def follow_with(self, load: Load, output: Path) -> None:
        """Take the clients, and wait until they are at work."""
        self.load, self.journal = load, Journal(output, None)
        self.wait_at_work()

    def follow_python(self) -> None:
        """Start our own clients."""
        output = self._home / "load.txt"
        self.follow_with(PythonLoad(self.namesrv.address, output), output)

    def follow_java(self, java: Java) -> None:
        """Start the official clients."""
        load = JavaLoad(java, self.namesrv.address)
        self.follow_with(load, load.process.log)

    def launch(self, role: Role, **more: str | int) -> ClockedBroker:
        """Start a broker and wait until it has booted."""
        launched = role.servers.launch_broker(
            self.namesrv.address, role.store, {**self._settings, **role.settings, **more}, role.port, module=MODULE
        )
        broker = ClockedBroker(launched.name, launched.process, launched.log, launched.port, role.seen, launched.host)
        role.servers.started[-1] = broker
        self._started.append(broker)
        broker.wait_for(BOOTED)
        return broker

    def start(self, role: Role, **more: str | int) -> ClockedBroker:
        """Start a broker and wait until it is registered."""
        broker = self.launch(role, **more)
        wait_serving(broker, self.namesrv.address)
        return broker

    def start_master(self, **more: str | int) -> None:
        """Start the master with its store."""
        self.master = self.start(self.master_role, **more)

    def start_slave(self, **more: str | int) -> None:
        """Start the slave with its store, at the port that it had."""
        self.slave = self.start(self.slave_role._replace(port=self.slave.port), **more)

    def start_namesrv(self) -> None:
        """Start the name server at its port."""
        self.namesrv = self._all[NAMESRV].namesrv(self.namesrv.port, **self.machines.settings)

    def make_topic(self) -> None:
        """Create the topic at the master."""
        make_topic(self.master.address, self.namesrv.address, TOPIC, QUEUES)

    def hold(self, least_s: float = 1.0, most_s: float = 3.0) -> None:
        """Let a fault last a random time: its moment and length are the test."""
        time.sleep(self.random.uniform(least_s, most_s))

    def wait_at_work(self) -> None:
        """Wait until each producer was acknowledged again, and the consumer got a message."""
        journal = self.journal
        journal.read_on()
        got, before = journal.got, set(journal.acknowledged)

        def at_work() -> bool:
            assert self.load.is_alive, "the clients ended"
            journal.read_on()
            new = journal.acknowledged.keys() - before
            return len(new) >= _PROGRESS and len({each.producer for each in new}) == PRODUCERS and journal.got > got

        wait_until(at_work, "all producers were acknowledged and the consumer got a message", PROGRESS_LIMIT_S)

    def forget_master_log(self) -> None:
        """Note that the master's store was replaced."""
        self._followers.pop(MASTER, None)

    def check(self) -> None:
        """Check that both brokers have each acknowledged message, and that the consumer skipped and repeated none."""
        self.check_copy(MASTER)
        self.check_copy(SLAVE)
        assert self.journal.breaks == []
        assert self.journal.steps_back == []

    def check_copy(self, name: str) -> None:
        """Check that a broker's log has each message that was acknowledged until now."""
        self.journal.read_on()
        acknowledged = dict(self.journal.acknowledged)
        records = self._records(name)
        lost = {
            attempt: place
            for attempt, place in acknowledged.items()
            if place not in records or attempt_of(records[place]) != attempt
        }
        assert not lost, f"{name} lacks {len(lost)} of {len(acknowledged)} acknowledged messages: {lost}"

    def _records(self, name: str) -> dict[Place, Found]:
        store = {MASTER: self.master_role, SLAVE: self.slave_role}[name].seen
        follower = self._followers.setdefault(name, CommitLogFollower(store, LOG_FILE))
        follower.read_on()
        return follower.records

    def restore_master(self) -> None:
        """Give the master a copy of the slave's store; both are stopped."""
        shutil.rmtree(self.master_role.seen)
        shutil.copytree(self.slave_role.seen, self.master_role.seen)
        self.forget_master_log()

    def fill_slave_disk(self) -> Callable[[], None]:
        """Fill the slave's disk with another file; return what removes it."""
        assert self.disk is not None
        path = self.disk.seen_from_here / "foreign"
        with path.open("wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(_CHUNK))
            except OSError:
                return path.unlink

    def fail_slave_syncs(self) -> Callable[[], None]:
        """Make each sync of the slave's disk fail; return the callable that ends it."""
        # Renamed, since an empty file would make the syncs wait.
        written = self._slave_sync_mark.with_suffix(".written")
        written.write_text(faulty_sync.FAIL)
        written.rename(self._slave_sync_mark)
        return self._slave_sync_mark.unlink

    def check_nothing_acknowledged(self) -> None:
        """Check that no producer gets an acknowledgement, from the next failure of each on."""
        journal = self.journal
        journal.read_on()
        failed = set(journal.failed)

        def all_failed() -> bool:
            journal.read_on()
            return len({each.producer for each in journal.failed.keys() - failed}) == PRODUCERS

        # The acknowledgement of each message before it has come or never comes.
        wait_until(all_failed, "each producer got a failure", PROGRESS_LIMIT_S)
        acknowledged = len(journal.acknowledged)
        self.hold(2.0, 4.0)
        journal.read_on()
        assert len(journal.acknowledged) == acknowledged

    def finish(self) -> str:
        """Let the clients finish, stop the brokers, check the whole history, and return a line about it."""
        self.load.stop_sending()
        wait_until(self._is_produced, "the producers ended", PROGRESS_LIMIT_S)
        wait_until(self._have_arrived, "the consumer has all messages", PROGRESS_LIMIT_S)
        wait_until(
            lambda: same_logs(self.master_role.seen, self.slave_role.seen), "both logs are the same", PROGRESS_LIMIT_S
        )
        wait_until(self._is_committed, "the master has the consumer's progress", PROGRESS_LIMIT_S)
        self.load.close()
        assert (self.slave.stop(), self.master.stop()) == (0, 0)
        self.check()
        for name in (MASTER, SLAVE):
            known = self._followers.pop(name).records
            assert self._records(name) == known, f"the log of {name} is not what it was when it was first read"
        self._check_history()
        self._check_logs_of_servers()
        journal, stored = self.journal, len(self._stored())
        return (
            f"{len(journal.acknowledged)} acknowledged, 0 lost, {len(journal.failed)} sends failed, "
            f"{stored - len(journal.acknowledged)} of them stored all the same, "
            f"{journal.got - len(journal.first_arrivals)} deliveries repeated"
        )

    def _is_produced(self) -> bool:
        self.journal.read_on()
        return self.journal.produced

    def _stored(self) -> dict[Place, Attempt]:
        return {place: attempt_of(found) for place, found in self._records(MASTER).items() if place.topic == TOPIC}

    def _have_arrived(self) -> bool:
        self.journal.read_on()
        return sum(self.journal.arrived.values()) >= len(self._stored())

    def _is_committed(self) -> bool:
        """Return true if the master's table has the ends of all queues."""
        if isinstance(self.load, PythonLoad):
            return True
        ends: dict[tuple[str, int], int] = {}
        for topic, queue_id, offset in self._stored():
            ends[topic, queue_id] = max(ends.get((topic, queue_id), 0), offset + 1)
        try:
            return committed_offsets(self.master_role.seen).items() >= ends.items()
        except FileNotFoundError:  # it is just being replaced
            return False

    def _check_history(self) -> None:
        stored, journal = self._stored(), self.journal
        assert len(set(stored.values())) == len(stored), "an attempt is stored twice"
        assert journal.first_arrivals == stored
        by_attempt = sorted(journal.acknowledged.items())
        latest: dict[tuple[int, int], Place] = {}
        for attempt, place in by_attempt:
            key = attempt.producer, place.queue_id
            assert key not in latest or latest[key] < place, f"{attempt} at {place} precedes {latest[key]}"
            latest[key] = place

    def _check_logs_of_servers(self) -> None:
        """Check that no server met an error that it did not expect; one with a faulty disk may print where."""
        for server in self._started:
            text = server.text()
            is_faulty = any(error in text for error in _DISK_ERRORS)
            assert is_faulty or not any(word in text for word in ("CRITICAL", "Traceback"))

    def close(self) -> None:
        """End all processes."""
        try:
            if hasattr(self, "load"):
                self.load.close()
        finally:
            for servers in self._all.values():
                for server in servers.started:
                    server.thaw()
                servers.close()


def attempt_of(found: Found) -> Attempt:
    """Return the attempt to send that a record's body names."""
    producer, n, attempt = found.body.split(b" ", 3)[:3]
    return Attempt(int(producer), int(n), int(attempt))


def small_disk() -> PrivateDisk | None:
    """Return a disk for the slave, ``None`` where none can be made; print the reason."""
    try:
        return PrivateDisk(DISK_SIZE)
    except pytest.skip.Exception as refused:
        print(refused)
        return None
