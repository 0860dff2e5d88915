"""A connection to the HA port proves nothing: who may connect, and who counts."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from struct import pack
from typing import Any, NamedTuple

import pytest

from rocketbroker.codec.ha_frames import TRANSFER_HEADER
from rocketbroker.common.config import MessageStoreConfig, TransportConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.ha import ha_connection, ha_service
from rocketbroker.ha.ha_connection import TransferSource
from rocketbroker.ha.ha_service import GroupTransferService, SlaveGate
from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    PutMessageResult,
    PutMessageStatus,
    outcome_of,
)
from tests.support.ha_pair import HAMaster, ha_master
from tests.support.ports import LOOPBACK, free_ports
from tests.support.replicas import fill, log_bytes
from tests.support.stores import make_store
from tests.support.waiting import until

pytestmark = [
    pytest.mark.proves("A log that copies another's", "a slave follows, stops and continues"),
    pytest.mark.proves("A log that copies another's", "answers that wait for slaves"),
]

OWN = "10.0.0.1"


class Slave(NamedTuple):
    peer_host: str
    own_host: str = OWN


def gate(*known: str, **settings: Any) -> SlaveGate[Slave]:
    return SlaveGate(TransportConfig(**settings), OWN, lambda: known, lambda: None)


@pytest.mark.parametrize("peer", ["127.0.0.1", "::1", OWN])
def test_this_machine_may_connect(peer: str):
    assert gate().rejects(peer, OWN) == ""


def test_others_may_connect_if_a_white_list_has_them():
    assert "not in brokerWhiteList" in gate().rejects("10.0.0.2", OWN)
    assert gate(broker_white_list="10.0.0.0/24").rejects("10.0.0.2", OWN) == ""
    assert gate(admin_white_list="10.0.0.2").rejects("10.0.0.2", OWN) == ""
    assert gate(protected_mode=False).rejects("10.0.0.2", OWN) == ""


def test_only_slaves_that_a_name_server_knows_count():
    known, stranger = Slave("10.0.0.2"), Slave("10.0.0.3")

    assert gate("10.0.0.2").counted([stranger, known]) == [known]
    assert gate().counted([stranger, known]) == []
    assert gate(protected_mode=False).counted([stranger, known]) == [known, stranger]


def test_as_many_connections_of_a_host_count_as_slaves_are_there_the_newest_first():
    old, new = Slave("10.0.0.2"), Slave("10.0.0.2", "10.0.0.1")

    assert gate("10.0.0.2").counted([old, new]) == [new]
    assert len(gate("10.0.0.2", "10.0.0.2").counted([old, new, old])) == 2


def test_one_slave_on_two_connections_counts_once_without_protected_mode():
    old, new, other = Slave("10.0.0.2"), Slave("10.0.0.2", "10.0.0.9"), Slave("10.0.0.3")

    assert gate(protected_mode=False).counted([old, new, other]) == [other, new]
    assert gate("10.0.0.2", "10.0.0.2", protected_mode=False).counted([old, new, other]) == [other, new, old]


def test_addresses_are_compared_when_connections_or_name_servers_change_only(monkeypatch: pytest.MonkeyPatch):
    compared, known = list[str](), list[str]()

    def compare(peer: str, _own: str) -> bool:
        compared.append(peer)
        return False

    monkeypatch.setattr(ha_service, "is_this_machine", compare)
    found = SlaveGate[Slave](TransportConfig(), OWN, lambda: known, lambda: None)
    peers = [Slave("10.0.0.2")]

    assert found.counted(peers) == []
    del compared[:]
    assert found.counted(peers) == []
    assert compared == []
    known.append("10.0.0.2")
    assert found.counted(peers) == peers


@pytest.mark.parametrize("registered", [OWN, "127.0.0.1"])
@pytest.mark.parametrize("peer", [OWN, "127.0.0.1"])
def test_all_addresses_of_this_machine_are_one(registered: str, peer: str):
    slave = Slave(peer, peer)
    assert gate(registered).counted([slave]) == [slave]


def service(acks: list[int], **settings: Any) -> GroupTransferService:
    found = GroupTransferService(MessageStoreConfig(**settings))
    found.ack_offsets = lambda: acks
    return found


def wait(transfers: GroupTransferService, offset: int) -> asyncio.Future[Acknowledgement]:
    result = PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=offset - 10, size=10)
    return outcome_of(lambda tell: transfers.acknowledge(result, tell))


async def test_one_replica_is_the_master_alone_and_waits_for_nobody():
    assert wait(service([]), 100).result() == ACKNOWLEDGED


@pytest.mark.parametrize(
    ("needed", "acks", "acknowledged"),
    [(2, [], 0), (2, [100], 1), (2, [99], 0), (2, [5, 200], 2), (3, [100, 100], 1), (3, [200, 99], 0), (3, [300], 0)],
)
async def test_the_slowest_slave_that_is_needed_counts(needed: int, acks: list[int], acknowledged: int):
    transfers = service(acks, in_sync_replicas=needed, slave_timeout=60_000)
    waits = [wait(transfers, 100), wait(transfers, 200)]

    transfers.reported()

    assert [each.done() for each in waits] == [number < acknowledged for number in range(2)]
    assert all(each.result() == ACKNOWLEDGED for each in waits[:acknowledged])


async def test_a_late_slave_ends_the_wait_with_the_reason_and_the_next_one_has_its_own_time():
    acks = [100]
    transfers = service(acks, in_sync_replicas=2, slave_timeout=30)
    late = await wait(transfers, 200)

    assert late.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert "not on 1 slaves within 30 ms (inSyncReplicas, slaveTimeout)" in late.reason
    following = wait(transfers, 300)
    acks[:] = [300]
    transfers.reported()
    assert following.result() == ACKNOWLEDGED


async def test_slaves_are_described_once_for_all_late_messages():
    transfers, numbers = service([], in_sync_replicas=2, slave_timeout=20), count(1)
    transfers.slaves = lambda: f"text {next(numbers)}"
    late = [await each for each in [wait(transfers, 100) for _ in range(5)]]

    assert {each.reason[-8:] for each in late} == {"; text 1"}


def set_hot(transfers: GroupTransferService, **settings: int) -> None:
    transfers._config.__dict__.update(settings)


async def test_a_lower_timeout_applies_to_waits_that_began_before_and_after():
    transfers = service([], in_sync_replicas=2, slave_timeout=600_000)
    first = wait(transfers, 100)
    set_hot(transfers, slave_timeout=20)
    second = wait(transfers, 200)
    transfers.reported()

    async with asyncio.timeout(60):
        for each in (first, second):
            assert (await each).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT


async def test_a_lower_demand_holds_for_messages_that_are_put_from_then_on():
    acks = list[int]()
    transfers = service(acks, in_sync_replicas=2, slave_timeout=600_000)
    waiting = wait(transfers, 100)
    set_hot(transfers, in_sync_replicas=1)
    transfers.reported()

    assert not waiting.done()
    assert wait(transfers, 200).result() == ACKNOWLEDGED
    acks.append(100)
    transfers.reported()
    assert waiting.result() == ACKNOWLEDGED
    assert transfers._patience is None


LIMIT_S = 60


@asynccontextmanager
async def connected(master: HAMaster) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(LOOPBACK, master.port)
    try:
        yield reader, writer
    finally:
        writer.close()


async def next_transfer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    async with asyncio.timeout(LIMIT_S):
        offset, size = TRANSFER_HEADER.unpack(await reader.readexactly(TRANSFER_HEADER.size))
        return offset, await reader.readexactly(size)


async def test_transfers_have_the_set_size_and_follow_each_other(tmp_path: Path):
    async with ha_master(tmp_path, ha_transfer_batch_size=1000) as master:
        fill(master.store, "a", 5)
        log = log_bytes(master.store)
        async with connected(master) as (reader, writer):
            writer.write(pack(">q", 7))
            got = b""
            while len(got) < len(log) - 7:
                offset, data = await next_transfer(reader)
                assert (offset, len(data)) == (7 + len(got), min(1000, len(log) - offset))
                got += data
            assert got == log[7:]
            assert await next_transfer(reader) == (len(log), b""), "a heartbeat"

            fill(master.store, "b", 1)
            master.store.appender.dispatch()
            more = log_bytes(master.store)[len(log) :]
            while (transfer := await next_transfer(reader)) == (len(log), b""):
                pass
            assert transfer == (len(log), more[:1000])


async def test_under_sync_flush_slaves_get_what_is_on_disk(tmp_path: Path):
    async with ha_master(tmp_path, flush_disk_type="SYNC_FLUSH") as master:
        fill(master.store, "a", 5)
        await master.store.flusher.sync()
        with master.store.flusher.pause:
            fill(master.store, "b", 5)
            assert master.source.end == master.store.flusher.flushed_offset < master.source.log_end
        await master.store.flusher.sync()
        assert master.source.end == master.source.log_end


@pytest.mark.parametrize(
    "reports", [pack(">q", 1 << 40), pack(">q", -1), pack(">qq", 100, 99), pack(">qq", 100, 1 << 40)]
)
async def test_a_wrong_report_closes_the_connection_and_acknowledges_nothing(
    tmp_path: Path, reports: bytes, caplog: pytest.LogCaptureFixture
):
    async with ha_master(tmp_path, in_sync_replicas=2, slave_timeout=100) as master:
        fill(master.store, "a", 5)
        end = master.store.commit_log.max_offset
        result = PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=end - 10, size=10)
        waiting = outcome_of(lambda tell: master.transfers.acknowledge(result, tell))
        async with connected(master) as (reader, writer):
            writer.write(reports)
            async with asyncio.timeout(LIMIT_S):
                await reader.read()
                await until(lambda: not master.service.connections)
            assert (await waiting).status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert "is closed: " in caplog.text


async def report_twice(master: HAMaster, writer: asyncio.StreamWriter, offset: int) -> None:
    """Report an offset to begin at, and once more after it was taken: that the slave has the log up to there."""
    writer.write(pack(">q", offset))
    await until(lambda: [each for each in master.service.connections if each.next_offset >= 0])
    writer.write(pack(">q", offset))


async def test_the_first_report_acknowledges_nothing_and_the_next_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    # Longer than any wait: a report acknowledges by itself.
    monkeypatch.setattr(ha_service, "TICK_S", 3600.0)
    async with ha_master(tmp_path, in_sync_replicas=2, slave_timeout=60_000) as master:
        fill(master.store, "a", 5)
        end = master.store.commit_log.max_offset
        waiting = outcome_of(lambda tell: master.transfers.acknowledge(put_until(end), tell))
        async with connected(master) as (_, writer):
            writer.write(pack(">q", end))
            await until(lambda: [each.next_offset for each in master.service.connections] == [end])
            [slave] = master.service.runtime_info().ha_connection_info
            assert (slave.slave_ack_offset, slave.in_sync, waiting.done()) == (-1, False, False)
            assert master.service.in_sync_slaves == 0

            writer.write(pack(">q", end))
            assert await waiting == ACKNOWLEDGED


def put_until(end: int) -> PutMessageResult:
    return PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=end - 10, size=10)


async def test_a_stalled_disk_of_the_master_closes_no_slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ha_connection, "_HOT", 5_000)
    async with ha_master(tmp_path, flush_disk_type="SYNC_FLUSH") as master, connected(master) as (reader, writer):
        fill(master.store, "a", 5)
        await master.store.flusher.sync()
        flushed = master.source.end
        writer.write(pack(">q", flushed))
        await until(lambda: master.service.connections and master.service.connections[0].next_offset == flushed)
        [slave] = master.service.connections
        with master.store.flusher.pause:
            fill(master.store, "b", 40)
            slave.transfer()
            assert slave._catch_up is None
            assert master.source.is_hot(flushed)
        await master.store.flusher.sync()
        got = flushed
        while got < master.source.log_end:
            got += len((await next_transfer(reader))[1])
        assert master.service.connections == [slave]


async def test_a_slave_that_does_not_read_is_closed_at_once(tmp_path: Path):
    async with ha_master(tmp_path, mapped_file_size_commit_log=1 << 24) as master, connected(master) as (_, writer):
        fill(master.store, "a", 3_000)
        writer.write(pack(">q", 1))
        await until(lambda: master.service.connections and not master.service.connections[0]._can_write.is_set())
        [slave] = master.service.connections
        transport = slave._transport
        assert transport is not None
        slave.close("the test wants it")
        await until(lambda: transport.get_extra_info("socket").fileno() == -1)


async def test_a_connected_slave_that_does_not_count_is_named_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(ha_service, "_UNKNOWN_S", 0.0)
    monkeypatch.setattr(ha_service, "TICK_S", 0.01)
    settings: dict[str, Any] = {"broker_role": "SYNC_MASTER", "in_sync_replicas": 2, "slave_timeout": 30}
    async with ha_master(tmp_path, known=[], **settings) as master, connected(master) as (_, writer):
        writer.write(pack(">q", 0))
        await until(lambda: "no send waits for the slave at" in caplog.text)
        late = await outcome_of(lambda tell: master.transfers.acknowledge(put_until(10), tell))
        assert "connected slaves: 1, of which count: 0: the name servers know no more slaves" in late.reason
        assert "set brokerIP1" in late.reason
        assert caplog.text.count("no send waits for the slave at") == 1


async def test_a_slave_ahead_is_told_where_the_log_ends(tmp_path: Path):
    async with ha_master(tmp_path) as master:
        fill(master.store, "a", 5)
        end = master.store.commit_log.max_offset
        async with connected(master) as (reader, writer):
            writer.write(pack(">q", end + 1))
            assert await next_transfer(reader) == (end, b"")
            assert await reader.read() == b""


async def test_a_slave_that_no_name_server_knows_acknowledges_nothing(tmp_path: Path):
    async with ha_master(tmp_path, known=[], in_sync_replicas=2, slave_timeout=60_000) as master:
        fill(master.store, "a", 5)
        end = master.store.commit_log.max_offset
        result = PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=end - 10, size=10)
        waiting = outcome_of(lambda tell: master.transfers.acknowledge(result, tell))
        async with connected(master) as (_, writer):
            await report_twice(master, writer, end)
            await until(lambda: [each.ack_offset for each in master.service.connections] == [end])
            assert not waiting.done()
            assert master.service.runtime_info().in_sync_slave_nums == 1
            assert master.service.in_sync_slaves == 0, "sends do not wait for it"
            master.known = [LOOPBACK]
            assert await waiting == ACKNOWLEDGED
            assert master.service.in_sync_slaves == 1


async def test_a_silent_connection_is_no_slave(tmp_path: Path):
    async with ha_master(tmp_path, in_sync_replicas=2, slave_timeout=60_000) as master:
        fill(master.store, "a", 5)
        end = master.store.commit_log.max_offset
        async with connected(master) as (_, writer), connected(master):
            await report_twice(master, writer, end)
            await until(lambda: master.transfers.ack_offsets() == [end])
            async with connected(master):
                await until(lambda: len(master.service.connections) == 3)
                waiting = outcome_of(lambda tell: master.transfers.acknowledge(put_until(end), tell))
                master.transfers.reported()

                assert waiting.result() == ACKNOWLEDGED
                assert master.transfers.ack_offsets() == [end]
                assert master.transfers.slaves() == "connected slaves: 1, of which count: 1"
                assert len(master.service.runtime_info().ha_connection_info) == 1


async def test_a_new_connection_has_the_name_servers_asked_for_slaves(tmp_path: Path):
    async with ha_master(tmp_path) as master:
        assert master.looks == 0
        async with connected(master):
            await until(lambda: master.looks == 1)


async def test_a_slave_gets_messages_at_once_after_another_one_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # Longer than any wait for what comes at once.
    monkeypatch.setattr(ha_service, "TICK_S", 3600.0)
    async with ha_master(tmp_path) as master, connected(master) as (reader, writer):
        writer.write(pack(">q", 0))
        await until(lambda: [each.next_offset for each in master.service.connections] == [0])
        async with connected(master):
            await until(lambda: len(master.service.connections) == 2)
        await until(lambda: len(master.service.connections) == 1)

        fill(master.store, "a", 1)
        master.store.appender.dispatch()

        assert (await next_transfer(reader))[0] == 0


async def test_a_stop_waits_until_the_slave_has_all(tmp_path: Path):
    async with ha_master(tmp_path) as master, connected(master) as (reader, writer):
        fill(master.store, "a", 5)
        end = master.store.commit_log.max_offset
        await report_twice(master, writer, 0)
        await until(lambda: [each.ack_offset for each in master.service.connections] == [0])
        stopping = asyncio.create_task(master.service.stop())
        assert (await next_transfer(reader))[0] == 0
        await asyncio.sleep(0.1)
        assert not stopping.done()

        writer.write(pack(">q", end))
        await stopping
        assert not master.service.connections


async def test_a_stop_waits_for_no_slave_longer_than_its_timeout(tmp_path: Path):
    async with ha_master(tmp_path, slave_timeout=50) as master, connected(master) as (_, writer):
        fill(master.store, "a", 5)
        await report_twice(master, writer, 0)
        await until(lambda: [each.ack_offset for each in master.service.connections] == [0])
        async with asyncio.timeout(2):
            await master.service.stop()


async def test_a_silent_slave_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ha_service, "TICK_S", 0.02)
    async with ha_master(tmp_path, ha_housekeeping_interval=100) as master, connected(master) as (reader, _):
        async with asyncio.timeout(LIMIT_S):
            assert await reader.read() == b""
        assert not master.service.connections
        assert master.store.appender.on_appended is None


async def test_a_stalled_slave_costs_bounded_memory_and_gets_the_rest_later(tmp_path: Path):
    async with (
        ha_master(tmp_path, mapped_file_size_commit_log=1 << 24) as master,
        connected(master) as (reader, writer),
    ):
        writer.write(pack(">q", 0))
        await until(lambda: master.service.connections and master.service.connections[0].next_offset == 0)
        [slave] = master.service.connections
        transport = slave._transport
        assert transport is not None
        # Small buffers of the system: the log is longer than these take, and the reader, and the master's limit.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        fill(master.store, "a", 1500)
        await until(lambda: not slave._can_write.is_set())
        waiting = transport.get_write_buffer_size()
        assert waiting <= (1 << 20) + (1 << 16)
        fill(master.store, "b", 1500)
        await asyncio.sleep(0)
        assert transport.get_write_buffer_size() <= waiting, "a send leaves nothing for a stalled slave"
        end = master.store.commit_log.max_offset
        assert slave.next_offset < end
        got = 0
        while got < end:
            offset, data = await next_transfer(reader)
            assert offset == got
            got += len(data)


async def test_the_number_of_connections_is_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    monkeypatch.setattr(ha_service, "_MOST_CONNECTIONS", 1)
    async with ha_master(tmp_path) as master, connected(master):
        await until(lambda: len(master.service.connections) == 1)
        for _ in range(3):
            async with connected(master) as (reader, _), asyncio.timeout(LIMIT_S):
                assert await reader.read() == b""
        assert caplog.text.count("is rejected: 1 slaves are connected already") == 1, "one line for many"


async def test_a_port_that_another_process_took_is_named(tmp_path: Path):
    store = make_store(tmp_path)
    await store.start()
    master = HAMaster(store, port=free_ports())
    try:
        with socket.socket() as other:
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((LOOPBACK, master.port))
            other.listen()
            with pytest.raises(ConfigError, match=f"cannot listen on {LOOPBACK}:{master.port}"):
                await master.service.start()
    finally:
        await master.service.stop()
        master.close()
        await store.stop()


@pytest.mark.parametrize(
    ("acks", "settings", "acknowledged"),
    [
        ([], {}, True),
        ([-1], {}, True),
        ([900], {}, False),
        ([1_000], {}, True),
        ([899], {}, True),
        ([1_000, 899], {"in_sync_replicas": 3}, True),
        ([1_000, 900], {"in_sync_replicas": 3}, False),
        ([], {"min_in_sync_replicas": 2}, False),
        ([1_000], {"in_sync_replicas": 3, "min_in_sync_replicas": 2}, True),
    ],
    ids=str,
)
async def test_slaves_that_lag_or_are_gone_are_not_waited_for_where_their_number_adapts(
    acks: list[int], settings: dict[str, int], acknowledged: bool
):
    config = {"in_sync_replicas": 2, "ha_max_gap_not_in_sync": 101, "slave_timeout": 600_000} | settings
    transfers = service(acks, enable_auto_in_sync_replicas=True, **config)
    transfers.log_end = lambda: 1_000
    waiting = wait(transfers, 1_000)
    transfers.reported()

    assert waiting.done() is acknowledged


@pytest.mark.parametrize(
    ("acks", "settings", "is_rejected"),
    [
        ([], {}, True),
        ([-1], {}, True),
        ([899], {}, True),
        ([900], {}, False),
        ([], {"in_sync_replicas": 1}, False),
        ([], {"enable_auto_in_sync_replicas": True}, False),
        ([], {"enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 2}, True),
        ([1_000], {"enable_auto_in_sync_replicas": True, "min_in_sync_replicas": 2}, False),
    ],
    ids=str,
)
async def test_too_few_brokers_in_sync_reject_a_put(acks: list[int], settings: dict[str, Any], is_rejected: bool):
    transfers = service(acks, **({"in_sync_replicas": 2, "ha_max_gap_not_in_sync": 101} | settings))
    transfers.log_end = lambda: 1_000
    transfers.slaves = lambda: "the slaves"
    found = transfers.shortage()

    assert (found is not None) is is_rejected
    if found is not None:
        assert found.status is PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH
        name = "minInSyncReplicas" if settings.get("enable_auto_in_sync_replicas") else "inSyncReplicas"
        assert f"0 slaves are in sync (haMaxGapNotInSync), and the message needs 1 ({name}); the slaves" in found.reason


@pytest.mark.parametrize("is_seen_first", [True, False], ids=["seen before the timeout", "seen after it"])
async def test_messages_that_wait_keep_their_demand_when_their_slave_is_gone(is_seen_first: bool):
    acks = [950]
    transfers = service(acks, enable_auto_in_sync_replicas=True, in_sync_replicas=2, slave_timeout=30)
    transfers.log_end = lambda: 1_000
    waiting = wait(transfers, 1_000)
    acks.clear()
    if is_seen_first:
        transfers.reported()

    late = await waiting
    assert late.status is PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    assert "not on 1 slaves within 30 ms" in late.reason


async def test_messages_with_a_lower_demand_do_not_wait_for_those_with_a_higher_one():
    acks = [900, 900]
    transfers = service(acks, enable_auto_in_sync_replicas=True, in_sync_replicas=3, slave_timeout=600_000)
    transfers.log_end = lambda: 1_000
    both = wait(transfers, 1_000)
    acks[:] = [950]
    one = wait(transfers, 1_000)
    acks[:] = [1_000]
    transfers.reported()

    assert one.result() == ACKNOWLEDGED
    assert not both.done()
    acks[:] = [1_000, 1_000]
    transfers.reported()
    assert both.result() == ACKNOWLEDGED
    assert transfers._patience is None


@pytest.mark.parametrize("is_hot", [True, False])
async def test_flow_control_limits_what_a_slave_gets_in_a_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_hot: bool
):
    monkeypatch.setattr(ha_connection, "FLOW_WINDOW_S", 0.2)
    monkeypatch.setattr(TransferSource, "is_hot", lambda *_: is_hot)
    limits: dict[str, Any] = {
        "ha_flow_control_enable": True,
        "max_ha_transfer_byte_in_second": 300,
        "ha_transfer_batch_size": 200,
    }
    async with ha_master(tmp_path, **limits) as master:
        fill(master.store, "a", 5)
        log, loop = log_bytes(master.store)[7:1007], asyncio.get_running_loop()
        begun = loop.time()  # the first window begins with the connection
        async with connected(master) as (reader, writer):
            writer.write(pack(">q", 7))
            got = b""
            sizes = []
            while len(got) < len(log):
                offset, data = await next_transfer(reader)
                assert offset == 7 + len(got)
                got += data
                sizes += [len(data)] if data else []
            took = loop.time() - begun

    assert got[: len(log)] == log
    assert sizes[:6] == [200, 100] * 3
    assert took >= 3 * 0.2 - 0.05, "1,000 bytes are the fourth window"
