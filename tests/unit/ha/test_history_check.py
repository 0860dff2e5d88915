"""Two logs count as the same only if their last records are the same, and a lost connection proves nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rocketbroker.codec.ha_frames import TRANSFER_HEADER, LogPart
from rocketbroker.common.errors import RemotingSendError
from rocketbroker.ha.history_check import CommonPrefix, DifferentHistoryError, TailCheck
from rocketbroker.store.commitlog.commit_log_walker import LogWalk
from rocketbroker.store.message_store import MessageStore
from tests.support.apache_ha_port import apache_ha_port
from tests.support.ports import LOOPBACK
from tests.support.replicas import fill, log_bytes, replica
from tests.support.stores import LOG_FILE, make_store, message

pytestmark = [
    pytest.mark.proves("A log that copies another's", "a slave follows, stops and continues"),
]


@asynccontextmanager
async def store_of(root: Path, *bodies: bytes, queue_id: int = 0) -> AsyncIterator[MessageStore]:
    """Start a store with messages; logs with other queue ids differ in a few bytes at the begin of each record."""
    store = make_store(root)
    await store.start()
    for body in bodies:
        store.appender.put_message(message(body, "Topic", queue_id))
    store.appender.dispatch()
    try:
        yield store
    finally:
        await store.stop()


def compare(store: MessageStore, master_log: bytes) -> TailCheck:
    check = TailCheck(store.commit_log)
    check.take(LogPart(check.begin, memoryview(master_log)[check.begin :]))
    return check


@pytest.mark.parametrize("size", [10, 4_000, 9_000, 60_000])
async def test_a_last_record_of_any_length_is_compared_whole(tmp_path: Path, size: int):
    bodies = bytes(5_000), bytes(size)
    async with store_of(tmp_path / "s", *bodies) as slave, store_of(tmp_path / "m", *bodies, queue_id=1) as master:
        with pytest.raises(DifferentHistoryError, match="has other bytes from"):
            compare(slave, log_bytes(master))
        assert compare(slave, log_bytes(slave)).is_done


async def test_a_record_forged_in_the_last_one_does_not_shorten_the_comparison(tmp_path: Path):
    async with store_of(tmp_path / "s", b"forged") as slave:
        record, last = log_bytes(slave), slave.commit_log.max_offset
        # The body begins 88 bytes after the record; the offset of a record is 28 bytes after its begin.
        forged = record[:28] + (last + 88 + 9_000).to_bytes(8, "big") + record[36:]
        slave.appender.put_message(message(bytes(9_000) + forged, "Carrier"))
        assert leads_to_a_record(slave, last + 88)
        assert TailCheck(slave.commit_log).begin <= last


def leads_to_a_record(store: MessageStore, begin: int) -> bool:
    walk = LogWalk(store.commit_log.queue, begin, check_crc=True)
    return walk.next_sound() is not None


async def test_the_record_before_the_end_of_a_file_is_compared(tmp_path: Path):
    bodies = bytes(40_000), bytes(40_000)
    async with (
        store_of(tmp_path / "o", *bodies) as source,
        store_of(tmp_path / "m", *bodies, queue_id=1) as master,
        replica(slave := make_store(tmp_path / "s")) as log,
    ):
        own = log_bytes(source)[:LOG_FILE]
        log.append(0, own)
        assert slave.commit_log.max_offset == LOG_FILE
        with pytest.raises(DifferentHistoryError, match="has other bytes from"):
            compare(slave, log_bytes(master)[:LOG_FILE])
        assert compare(slave, own).is_done


async def test_few_bytes_are_compared_if_the_last_records_are_short(tmp_path: Path):
    async with store_of(tmp_path / "s", bytes(30_000), b"short", b"short") as slave:
        assert slave.commit_log.max_offset - TailCheck(slave.commit_log).begin == 4096


@asynccontextmanager
async def master_with(*answers: bytes) -> AsyncIterator[str]:
    """Listen, answer each connection with the next of ``answers``, and close it; yield the address."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(left.pop(0))
        writer.close()

    server = await asyncio.start_server(serve, LOOPBACK, 0)
    try:
        yield f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


async def test_a_master_that_dies_within_an_answer_is_no_master_without_the_record(tmp_path: Path):
    async with store_of(tmp_path, b"a", b"b") as store:
        part = log_bytes(store)[1:20]
        async with master_with(TRANSFER_HEADER.pack(1, 5000) + part) as address:
            with pytest.raises(RemotingSendError):
                await CommonPrefix(address, store.commit_log, 5).find_end(store.commit_log.max_offset)


async def test_a_file_that_an_apache_master_has_removed_differs_in_nothing(tmp_path: Path):
    async with store_of(tmp_path) as store:
        fill(store, "a", 60)
        end, log = store.commit_log.max_offset, log_bytes(store)
        differs = next(at for at in starts(store) if at > LOG_FILE + 2_000)
        assert end > 2 * LOG_FILE, "the last file begins after the difference"
        other = log[:differs] + bytes(end - differs)
        async with apache_ha_port(other, begin=LOG_FILE) as address:
            assert await CommonPrefix(address, store.commit_log, 5).find_end(end - 1) == differs
        async with apache_ha_port(log[:differs], begin=LOG_FILE) as address:
            assert await CommonPrefix(address, store.commit_log, 5).find_end(end - 1) == differs


def starts(store: MessageStore) -> list[int]:
    walk = LogWalk(store.commit_log.queue, 0, check_crc=False, end=store.commit_log.max_offset)
    return [at for stretch in walk for at in stretch.offsets]


async def test_a_connection_that_is_closed_once_does_not_stand_for_a_removed_file(tmp_path: Path):
    async with store_of(tmp_path) as store:
        fill(store, "a", 1)
        other = TRANSFER_HEADER.pack(1, 4000) + bytes(4000)
        async with master_with(b"", other) as address:
            assert await CommonPrefix(address, store.commit_log, 5).find_end(store.commit_log.max_offset) == 0
        async with master_with(b"", b"") as address:
            end = store.commit_log.max_offset
            assert await CommonPrefix(address, store.commit_log, 5).find_end(end) == end
