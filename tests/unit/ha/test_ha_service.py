"""HA port of a master: reports that are wrong close the connection, and count for nothing."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from rocketbroker.codec.ha_frames import TRANSFER_HEADER
from rocketbroker.common.errors import ConfigError
from rocketbroker.ha import ha_service, transfer_source
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.acknowledgement import ACKNOWLEDGED, outcome_of
from tests.support.ha_pair import HAMaster, ha_master
from tests.support.ports import LOOPBACK, free_ports
from tests.support.replicas import fill, log_bytes
from tests.support.stores import make_store
from tests.support.waiting import until

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

            writer.write(pack(">q", end))
            assert await waiting == ACKNOWLEDGED


def put_until(end: int) -> PutMessageResult:
    return PutMessageResult(PutMessageStatus.PUT_OK, physical_offset=end - 10, size=10)


async def test_a_stalled_disk_of_the_master_closes_no_slave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transfer_source, "_HOT", 5_000)
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
    async with ha_master(tmp_path, known=[], **settings) as master, connected(master):
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
            master.known = [LOOPBACK]
            assert await waiting == ACKNOWLEDGED


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
