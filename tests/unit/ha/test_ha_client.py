"""Slave's side: it follows its master byte by byte, and stops with a reason at what does not fit."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from errno import EIO
from functools import partial
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from rocketbroker.codec.ha_frames import TRANSFER_HEADER
from rocketbroker.ha import ha_client, ha_connection
from rocketbroker.ha.history_check import CommonPrefix
from rocketbroker.ha.master_link import MasterLink
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus, outcome_of
from rocketbroker.store.logfile.mapped_file_queue import MappedFileQueue
from rocketbroker.store.message_store import MessageStore
from tests.support.apache_ha_port import apache_ha_port
from tests.support.ha_pair import HAMaster, HASlave, ha_master, ha_slave
from tests.support.ports import LOOPBACK
from tests.support.recording_file_system import RecordingFileSystem
from tests.support.replicas import fill, log_bytes
from tests.support.stores import LOG_FILE, make_store, read_queue
from tests.support.waiting import until

pytestmark = [
    pytest.mark.proves("A log that copies another's", "a slave follows, stops and continues"),
]


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ha_client, "_RETRY_S", 0.05)
    monkeypatch.setattr(ha_client, "_STOPPED_S", 0.05)
    monkeypatch.setattr(ha_client, "_ADDRESS_S", 0.01)


async def caught_up(master: HAMaster, slave: HASlave) -> None:
    end = master.store.commit_log.max_offset
    await until(lambda: slave.replica.max_offset == end)
    await until(lambda: end in [each.ack_offset for each in master.service.connections])


async def filled(root: Path, *fills: tuple[str, int]) -> None:
    """Make a store with messages and stop it."""
    store = make_store(root)
    await store.start()
    for prefix, count in fills:
        fill(store, prefix, count)
    await store.stop()


@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_gets_the_bytes_of_its_master_and_dispatches_them(tmp_path: Path, flush: str):
    async with ha_master(tmp_path / "m", flush_disk_type=flush) as master:
        fill(master.store, "a", 60)
        async with ha_slave(tmp_path / "s", master.address, flush_disk_type=flush) as slave:
            await caught_up(master, slave)
            fill(master.store, "b", 3)
            await caught_up(master, slave)

            begin = slave.store.commit_log.min_offset
            assert log_bytes(slave.store) == log_bytes(master.store)[begin:]
            assert begin == master.store.commit_log.max_offset // LOG_FILE * LOG_FILE > 0
            await until(lambda: slave.store.appender.dispatched_offset == slave.replica.max_offset)
            assert read_queue(slave.store, "Other", 0)[-1].body == read_queue(master.store, "Other", 0)[-1].body
            assert slave.client.problem == ""


async def test_a_slave_continues_where_it_stopped_after_a_restart_of_either(tmp_path: Path):
    async with ha_master(tmp_path / "m") as master:
        fill(master.store, "a", 5)
        for _ in range(2):
            # No message follows, and no report is due again.
            async with ha_slave(tmp_path / "s", master.address, ha_send_heartbeat_interval=60_000) as slave:
                await caught_up(master, slave)
    for count in (40, 60):
        async with ha_master(tmp_path / "m") as master, ha_slave(tmp_path / "s", master.address) as slave:
            fill(master.store, f"b{count}", count)
            await caught_up(master, slave)
            assert slave.store.commit_log.min_offset == 0
            assert log_bytes(slave.store) == log_bytes(master.store)


async def test_a_slave_far_behind_gets_what_is_read_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ha_connection, "_HOT", 10_000)
    await filled(tmp_path / "m", ("a", 5))
    await filled(tmp_path / "s", ("a", 0))
    async with ha_master(tmp_path / "m", ha_transfer_batch_size=7) as master:
        async with ha_slave(tmp_path / "s", master.address) as slave:
            await caught_up(master, slave)
        fill(master.store, "b", 80)
        async with ha_slave(tmp_path / "s", master.address) as slave:
            await caught_up(master, slave)
            assert log_bytes(slave.store) == log_bytes(master.store)


async def test_a_slave_waits_for_a_master_and_takes_another_address(tmp_path: Path):
    async with ha_slave(tmp_path / "s", "") as slave:
        await until(lambda: "no name server knows its master" in slave.client.problem)
        slave.address = f"{LOOPBACK}:1"
        await until(lambda: f"connect to {LOOPBACK}:1 failed" in slave.client.problem)
        async with ha_master(tmp_path / "m") as master:
            fill(master.store, "a", 1)
            slave.address = master.address
            await caught_up(master, slave)


async def test_a_slave_of_an_empty_master_follows_it(tmp_path: Path):
    """Nobody has sent a message yet: that is no fault."""
    heartbeats: dict[str, Any] = {"ha_send_heartbeat_interval": 100}
    async with (
        ha_master(tmp_path / "m", **heartbeats) as master,
        ha_slave(tmp_path / "s", master.address, **heartbeats) as slave,
    ):
        await until(lambda: slave.client.problem == "")
        assert master.store.commit_log.max_offset == 0


class TestFailingSyncs:
    """A slave whose disk fails its syncs."""

    @pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
    async def test_what_is_not_on_disk_is_not_acknowledged(self, tmp_path: Path, flush: str):
        disk = FailingDisk(tmp_path / "s")
        settings: dict[str, Any] = {"flush_disk_type": flush, "flush_interval_commit_log": 10}
        settings |= {"flush_commit_log_least_pages": 0, "file_system": disk}
        master_settings: dict[str, Any] = {"in_sync_replicas": 2, "slave_timeout": 300}
        async with (
            ha_master(tmp_path / "m", **master_settings) as master,
            ha_slave(tmp_path / "s", master.address, **settings) as slave,
        ):
            assert (await replicated(master, b"sound")) == PutMessageStatus.PUT_OK
            on_disk = slave.store.commit_log.max_offset
            await until(lambda: slave.store.flusher.flushed_offset == on_disk)

            disk.fails = True
            # The first ones may be reported before the sync that fails.
            master.put(b"before the sync")
            await until(lambda: bool(slave.store.flusher.error))
            reported = master.service.connections[0].ack_offset
            for number in range(5):
                assert (await replicated(master, b"%d" % number)) == PutMessageStatus.FLUSH_SLAVE_TIMEOUT
            end = master.store.commit_log.max_offset
            await until(lambda: slave.replica.max_offset == end)
            assert master.service.connections[0].ack_offset <= reported < end
            assert "could not be synced" in str(slave.client.runtime_info().ha_client_runtime_info)

            # No message follows: the repeated sync is reported by itself.
            disk.fails = False
            await until(lambda: [each.ack_offset for each in master.service.connections] == [end])
            assert not slave.store.flusher.error
            assert (await replicated(master, b"sound again")) == PutMessageStatus.PUT_OK

    async def test_a_slave_connects_again_once_its_log_is_on_disk(self, tmp_path: Path):
        disk = FailingDisk(tmp_path / "s")
        settings: dict[str, Any] = {"flush_interval_commit_log": 10, "flush_commit_log_least_pages": 0}
        async with (
            ha_master(tmp_path / "m") as master,
            ha_slave(tmp_path / "s", master.address, file_system=disk, **settings) as slave,
        ):
            disk.fails = True
            fill(master.store, "a", 3)
            end = master.store.commit_log.max_offset
            await until(lambda: bool(slave.store.flusher.error) and slave.replica.max_offset == end)
            master.service.connections[0].close("the link is lost")
            await until(lambda: "could not be synced" in slave.client.problem)
            assert master.service.connections == []
            disk.fails = False
            await caught_up(master, slave)


class FailingDisk(RecordingFileSystem):
    """Disk that fails each sync of the CommitLog while ``fails`` is true."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.fails = False
        self.fault = self._fail

    def _fail(self, operation: str, path: Path) -> None:
        if self.fails and operation == "sync" and path.parent.name == "commitlog":
            raise OSError(EIO, "Input/output error")


async def replicated(master: HAMaster, body: bytes) -> PutMessageStatus:
    """Put a message and return its outcome under SYNC_MASTER."""
    return (await outcome_of(partial(master.transfers.acknowledge, master.put(body)))).status


class TestReturningMaster:
    async def test_a_log_is_compared_once_more(self, tmp_path: Path, caplog: pytest.LogCaptureFixture):
        async with ha_master(tmp_path / "m") as master:
            fill(master.store, "a", 5)
            async with ha_slave(tmp_path / "s", master.address) as slave:
                await caught_up(master, slave)
                assert await slave.client.is_compared(0)
                await until(lambda: slave.client.is_fed)

                slave.client.compare_again()
                assert not await slave.client.is_compared(0)
                assert await slave.client.is_compared(5)
                assert "its master has started again, and the logs are compared again" in caplog.text
            assert not slave.client.is_fed
            assert not await slave.client.is_compared(0)

    async def test_a_log_with_other_messages_is_not_compared(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setattr(ha_client, "_STOPPED_S", 60.0)
        await filled(tmp_path / "s", ("other", 9))
        async with ha_slave(tmp_path / "s", "") as slave, ha_master(tmp_path / "m") as master:
            fill(master.store, "a", 20)
            slave.address = master.address
            await until(lambda: "Replication has stopped" in slave.client.problem)
            slave.client.compare_again()
            assert not await slave.client.is_compared(0.05)
            assert not slave.client.is_fed

    async def test_a_silent_master_does_not_feed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        async with ha_master(tmp_path / "m") as master:
            fill(master.store, "a", 5)
            async with ha_slave(tmp_path / "s", master.address) as slave:
                await caught_up(master, slave)
                monkeypatch.setattr(ha_client, "_HEARTBEATS", 0)
                assert not slave.client.is_fed


class TestOtherHistory:
    async def test_a_slave_ahead_of_its_master_stops_and_names_the_first_message_too_many(self, tmp_path: Path):
        await filled(tmp_path / "s", ("a", 9))
        async with ha_slave(tmp_path / "s", "") as slave, ha_master(tmp_path / "m") as master:
            cut = await copied(slave.store, master.store, 6)
            before = log_bytes(slave.store)
            slave.address = master.address
            await until(lambda: "Replication has stopped" in slave.client.problem)

            assert f"mqstore truncate {tmp_path / 's'} {cut}" in slave.client.problem
            assert "the master's log ends at" in slave.client.problem
            assert log_bytes(slave.store) == before
            shown = slave.client.runtime_info().ha_client_runtime_info.master_addr
            assert shown == f"{master.address} ({slave.client.problem})"

    async def test_messages_that_another_history_has_acknowledge_none(self, tmp_path: Path):
        await filled(tmp_path / "s", ("other", 40))
        settings: dict[str, Any] = {"in_sync_replicas": 2, "slave_timeout": 60_000}
        async with ha_slave(tmp_path / "s", "") as slave, ha_master(tmp_path / "m", **settings) as master:
            fill(master.store, "a", 3)
            end = master.store.commit_log.max_offset
            result = PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=end - 10, size=10)
            waiting = outcome_of(lambda tell: master.transfers.acknowledge(result, tell))
            fill(master.store, "b", 80)
            slave.address = master.address
            await until(lambda: "Replication has stopped" in slave.client.problem)
            assert not waiting.done()

    async def test_the_first_difference_is_searched_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        searches, attempts = list[int](), list[str]()
        find_end, connect = CommonPrefix.find_end, MasterLink.connect

        async def count_search(prefix: CommonPrefix, differs_at: int) -> int:
            searches.append(differs_at)
            return await find_end(prefix, differs_at)

        async def count_attempt(address: str, silence_s: float, _security: object = None) -> MasterLink:
            attempts.append(address)
            return await connect(address, silence_s)

        await filled(tmp_path / "s", ("a", 3))
        async with ha_slave(tmp_path / "s", "") as slave, ha_master(tmp_path / "m") as master:
            monkeypatch.setattr(CommonPrefix, "find_end", count_search)
            slave.address = master.address
            await until(lambda: "Replication has stopped" in slave.client.problem)
            monkeypatch.setattr(MasterLink, "connect", count_attempt)
            await until(lambda: len(attempts) > 2)
            assert len(searches) == 1

    async def test_a_slave_with_other_messages_stops_and_continues_once_they_are_cut(self, tmp_path: Path):
        await filled(tmp_path / "s", ("a", 9))
        async with ha_slave(tmp_path / "s", "") as slave, ha_master(tmp_path / "m") as master:
            cut = await copied(slave.store, master.store, 6)
            fill(master.store, "other", 20)
            slave.address = master.address
            await until(lambda: f"mqstore truncate {tmp_path / 's'} {cut}" in slave.client.problem)
            assert "the master's log has other bytes from" in slave.client.problem
            assert slave.client.other_log == slave.client.problem

            await slave.replica.truncate(cut)

            await caught_up(master, slave)
            assert log_bytes(slave.store) == log_bytes(master.store)
            assert (slave.client.problem, slave.client.other_log) == ("", "")


async def test_a_log_continues_only_that_of_a_master_it_was_compared_with(tmp_path: Path):
    async with ha_master(tmp_path / "m") as master:
        fill(master.store, "a", 9)
        async with ha_slave(tmp_path / "s", master.address) as slave:
            await caught_up(master, slave)
        async with ha_slave(tmp_path / "s", "") as slave:
            changes: list[str] = []
            slave.client.on_change = lambda: changes.append(slave.client.problem)
            await until(lambda: "no name server knows its master" in slave.client.other_log)

            slave.address = master.address
            await until(lambda: not slave.client.other_log)
            assert changes[-1] == ""

            slave.address = f"{LOOPBACK}:1"
            assert slave.client.other_log == "this log was not compared with that of its master yet"


async def test_an_empty_log_continues_any(tmp_path: Path):
    async with ha_slave(tmp_path / "s", "") as slave:
        assert slave.client.other_log == ""


async def test_a_slave_of_an_empty_master_is_to_restore_it(tmp_path: Path):
    await filled(tmp_path / "s", ("a", 9))
    async with ha_master(tmp_path / "m") as master, ha_slave(tmp_path / "s", master.address) as slave:
        await until(lambda: "Replication has stopped" in slave.client.problem)
        remedy = f"if the master lost its store, stop both and copy {tmp_path / 's'} to it"
        assert remedy in slave.client.problem


async def test_a_slave_whose_place_an_apache_master_has_removed_names_the_file(tmp_path: Path):
    await filled(tmp_path / "m", ("a", 60))
    async with ha_slave(tmp_path / "m", "") as ahead, ha_slave(tmp_path / "s", "") as slave:
        cut = await copied(ahead.store, slave.store, 2)
        async with apache_ha_port(log_bytes(ahead.store), begin=LOG_FILE) as slave.address:
            await until(lambda: "has removed the file with" in slave.client.problem)
            assert "start this slave with an empty store" in slave.client.problem
            assert "truncate" not in slave.client.problem
            assert slave.replica.max_offset == cut


async def copied(source: MessageStore, target: MessageStore, count: int) -> int:
    """Copy the first messages of a log to another store, and return where they end."""
    ends = _starts(source.commit_log.queue)
    replica = target.make_replica_log()
    await replica.start()
    replica.append(0, log_bytes(source)[: ends[count]])
    await until(lambda: target.appender.dispatched_offset == ends[count])
    await replica.stop()
    return ends[count]


def _starts(queue: MappedFileQueue) -> list[int]:
    data, at, found = bytes(queue.files[0].buffer), 0, list[int]()
    while size := int.from_bytes(data[at : at + 4], "big"):
        found.append(at)
        at += size
    return found


class FakeMaster:
    """A master that answers the first report with bytes of the test's, and keeps the connection open."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.reports: list[bytes] = []
        self.later_reports: list[bytes] = []
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reports.append(await reader.read(8))
        if self.answers:
            writer.write(self.answers.pop(0))
        self.later_reports.append(await reader.read())
        writer.close()


@pytest.fixture
async def fake_master() -> AsyncIterator[FakeMaster]:
    fake = FakeMaster()
    server = await asyncio.start_server(fake.serve, LOOPBACK, 0)
    fake.address = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    yield fake
    server.close()


@asynccontextmanager
async def log_of_one(root: Path) -> AsyncIterator[bytes]:
    store = make_store(root)
    await store.start()
    fill(store, "a", 4)
    try:
        yield log_bytes(store)
    finally:
        await store.stop()


def _flipped(log: bytes, at: int) -> bytes:
    return log[:at] + bytes([log[at] ^ 1]) + log[at + 1 :]


class TestBadStreams:
    @pytest.mark.parametrize(
        ("bend", "said"),
        [
            (lambda log: pack(">qi", 0, -5), "announces -5 bytes"),
            (lambda log: pack(">qi", 0, 1 << 30), "announces 1,073,741,824 bytes"),
            (lambda log: transfer(100, log), "cannot begin at 100"),
            (lambda log: transfer(0, b"GET / HTTP/1.1" + bytes(100)), "do not begin with a record"),
            (lambda log: transfer(0, _flipped(log, 89)), "are wrong: bodyCRC"),
            (lambda log: transfer(0, _flipped(log, 35)), "do not begin with a record of that offset"),
            (lambda log: transfer(0, log[:50]) + transfer(60, log[60:]), "continues at 60"),
        ],
        ids=["negative", "huge", "amid a file", "no log", "body", "offset", "gap"],
    )
    async def test_a_stream_that_does_not_fit_is_left_and_nothing_of_it_stored(
        self, tmp_path: Path, fake_master: FakeMaster, bend, said: str
    ):
        async with log_of_one(tmp_path / "m") as log:
            fake_master.answers = [bend(log)]
            async with ha_slave(tmp_path / "s", fake_master.address) as slave:
                await until(lambda: said in slave.client.problem)
                assert slave.replica.max_offset == 0

    async def test_what_precedes_damage_stays_and_is_asked_for_no_more(self, tmp_path: Path, fake_master: FakeMaster):
        async with log_of_one(tmp_path / "m") as log:
            second = int.from_bytes(log[:4], "big")
            fake_master.answers = [transfer(0, _flipped(log, second + 89))]
            async with ha_slave(tmp_path / "s", fake_master.address) as slave:
                await until(lambda: len(fake_master.reports) > 1)
                assert slave.replica.max_offset == second
                assert fake_master.reports[:2] == [bytes(8), pack(">q", 1)]

    async def test_a_record_too_long_takes_no_memory(self, tmp_path: Path, fake_master: FakeMaster, monkeypatch):
        async with ha_slave(tmp_path / "s", "", mapped_file_size_commit_log=1 << 20) as slave:
            slave.store.commit_log.longest_record = 5000
            head = pack(">iIIiiqqi", 500_000, 0xDAA320A7, 0, 0, 0, 0, 0, 0) + bytes(60_000)
            fake_master.answers = [transfer(0, head)]
            slave.address = fake_master.address
            await until(lambda: "longer than 5,000 bytes, and its lengths do not agree" in slave.client.problem)
            assert slave.replica.max_offset == 0

    async def test_a_record_above_a_limit_that_was_lowered_is_copied(self, tmp_path: Path):
        async with (
            ha_master(tmp_path / "m", mapped_file_size_commit_log=1 << 20) as master,
            ha_slave(tmp_path / "s", "", mapped_file_size_commit_log=1 << 20) as slave,
        ):
            master.put(b"x" * 500_000)
            slave.store.commit_log.longest_record = 5000
            slave.address = master.address
            await caught_up(master, slave)
            assert log_bytes(slave.store) == log_bytes(master.store)

    async def test_a_slave_reports_nothing_more_before_its_log_was_compared(
        self, tmp_path: Path, fake_master: FakeMaster
    ):
        await filled(tmp_path / "s", ("a", 3))
        settings: dict[str, Any] = {"ha_send_heartbeat_interval": 10, "ha_housekeeping_interval": 200}
        async with ha_slave(tmp_path / "s", fake_master.address, **settings):
            await until(lambda: fake_master.later_reports)
            assert fake_master.later_reports[0] == b""

    async def test_an_error_of_the_disk_is_a_problem_too(
        self, tmp_path: Path, fake_master: FakeMaster, monkeypatch: pytest.MonkeyPatch
    ):
        def fail(_offset: int, _data: bytes) -> int:
            raise OSError("the disk is gone")

        async with log_of_one(tmp_path / "m") as log:
            fake_master.answers = [transfer(0, log)]
            async with ha_slave(tmp_path / "s", "") as slave:
                monkeypatch.setattr(slave.replica, "append", fail)
                slave.address = fake_master.address
                await until(lambda: "the disk is gone" in slave.client.problem)

    async def test_a_silent_master_is_left(self, tmp_path: Path, fake_master: FakeMaster):
        async with ha_slave(tmp_path / "s", fake_master.address, ha_housekeeping_interval=100) as slave:
            await until(lambda: "the master is silent for 0.1 s" in slave.client.problem)


def transfer(offset: int, data: bytes) -> bytes:
    return TRANSFER_HEADER.pack(offset, len(data)) + data
