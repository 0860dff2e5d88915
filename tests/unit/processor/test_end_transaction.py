"""END_TRANSACTION: who may end which transaction, once, and what consumers get then."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from rocketbroker.codec.message.message_const import TRANSACTION_COMMIT_TYPE
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.headers.message import EndTransactionRequestHeader
from rocketbroker.codec.remoting.remoting_command import RemotingCommand, request
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.store.commitlog.put_message import Refusal
from tests.support.fakes import FakeConnection
from tests.support.golden_frames import requests_of
from tests.support.processor_calls import decoded
from tests.support.stores import message, read_queue
from tests.support.transactions import COMMIT, ROLLBACK, Transactions

CODE = 37


@pytest.fixture
async def transactions(tmp_path: Path) -> AsyncIterator[Transactions]:
    found = await Transactions.open(tmp_path / "store")
    yield found
    await found.close()


def refused(transactions: Transactions, half: MessageExt, outcome: int = COMMIT, **fields: Any) -> tuple[int, str]:
    """Code and remark, and that nothing is stored or ended."""
    before = transactions.store.commit_log.max_offset
    is_open = transactions.service.open_offset(half)
    with pytest.raises(BrokerResponseError) as error:
        transactions.end(half, outcome, **fields)
    assert transactions.store.commit_log.max_offset == before
    assert transactions.service.open_offset(half) == is_open
    return error.value.code, error.value.remark


@pytest.mark.proves("Transactions", "commit, rollback and unknown; checked until the answer is clear")
async def test_a_commit_stores_the_message_where_it_was_to_go(transactions: Transactions):
    half = transactions.send(b"paid", KEYS="order-7")
    transactions.clock.advance(1)
    answer = transactions.end(half)
    assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
    (real,) = read_queue(transactions.store, "T", 1)
    expected = half.properties | {}
    del expected["REAL_TOPIC"], expected["REAL_QID"]
    assert real.properties == expected
    assert (real.body, real.flag, real.sys_flag) == (b"paid", 7, TRANSACTION_COMMIT_TYPE)
    assert real.prepared_transaction_offset == half.commit_log_offset
    assert (real.born_timestamp, real.born_host) == (half.born_timestamp, half.born_host)
    assert real.store_timestamp == transactions.clock.time_ms()
    assert transactions.stats.topic_put("T").nums == 1


@pytest.mark.proves("Transactions", "commit, rollback and unknown; checked until the answer is clear")
async def test_a_rollback_stores_nothing_but_the_op_message(transactions: Transactions):
    half = transactions.send()
    end = transactions.store.commit_log.max_offset
    assert transactions.end(half, ROLLBACK).code == ResponseCode.SUCCESS
    assert transactions.store.commit_log.max_offset == end
    transactions.write_ops()
    assert (transactions.bodies(), transactions.ops()) == ([], [b"0,"])


@pytest.mark.proves("Transactions", "commit, rollback and unknown; checked until the answer is clear")
async def test_an_unknown_outcome_leaves_it_open(transactions: Transactions):
    half = transactions.send()
    for from_check in (False, True):
        assert transactions.end(half, 0, from_transaction_check=from_check).code == ResponseCode.SUCCESS
    assert transactions.service.open_offset(half) == 0
    assert transactions.end(half).code == ResponseCode.SUCCESS
    assert transactions.bodies() == [half.body]


@pytest.mark.proves(
    "Transactions",
    "ended by a stranger, twice, or for a message that is no half message: rejected, nothing stored",
)
@pytest.mark.parametrize("first", [COMMIT, ROLLBACK])
@pytest.mark.parametrize("again", [COMMIT, ROLLBACK])
async def test_it_is_ended_once(transactions: Transactions, first: int, again: int):
    half, other = transactions.send(), transactions.send()
    transactions.end(half, first)
    expected = (
        ResponseCode.ILLEGAL_OPERATION,
        f"transaction {half.uniq_key} is not open: it was committed, rolled back or discarded already",
    )
    assert refused(transactions, half, again) == expected
    transactions.write_ops()
    assert refused(transactions, half, again) == expected
    transactions.end(other)
    assert refused(transactions, half, again) == expected
    assert len(transactions.bodies()) == 1 + (first == COMMIT)


async def test_it_is_ended_once_though_it_was_put_back_in_between(transactions: Transactions):
    producer = transactions.producer("one")
    half = transactions.send()
    await transactions.check()
    await transactions.check()
    first, second = transactions.asked(producer)
    assert transactions.end(first, from_transaction_check=True).code == ResponseCode.SUCCESS, "a late answer counts"
    for each in (half, first, second):
        assert refused(transactions, each)[0] == ResponseCode.ILLEGAL_OPERATION
    assert transactions.bodies() == [half.body]


@pytest.mark.proves(
    "Transactions",
    "ended by a stranger, twice, or for a message that is no half message: rejected, nothing stored",
)
async def test_a_stranger_cannot_end_it(transactions: Transactions):
    half = transactions.send()
    code, remark = refused(transactions, half, producer_group="Stranger")
    assert (code, remark) == (
        ResponseCode.SYSTEM_ERROR,
        "The producer group wrong: the transaction is of PG, not of Stranger",
    )


async def test_other_offsets_name_none(transactions: Transactions):
    half, other = transactions.send(), transactions.send()
    code, remark = refused(transactions, half, tran_state_table_offset=1)
    assert code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith("The transaction state table offset wrong: tranStateTableOffset is 1, ")
    assert remark.endswith(f"at commitLogOffset {half.commit_log_offset} has 0")
    for offset in (other.commit_log_offset, 3, -1, 2**63 - 1):
        code, _ = refused(transactions, half, commit_log_offset=offset)
        assert code == ResponseCode.SYSTEM_ERROR
    code, remark = refused(transactions, half, commit_log_offset=3)
    assert remark == "Find prepared transaction message failed: no message is at commitLogOffset 3"


@pytest.mark.proves(
    "Transactions",
    "ended by a stranger, twice, or for a message that is no half message: rejected, nothing stored",
)
async def test_a_message_that_is_no_half_message_cannot_be_ended(transactions: Transactions):
    half = transactions.send()
    stored = transactions.store.appender.put_message(message(b"x", "Plain", properties={"PGROUP": "PG"}))
    transactions.store.appender.dispatch()
    code, remark = refused(
        transactions, half, commit_log_offset=stored.physical_offset, tran_state_table_offset=stored.queue_offset
    )
    assert code == ResponseCode.SYSTEM_ERROR
    assert remark.startswith("Find prepared transaction message failed: a message of topic Plain is at")


async def test_a_half_message_that_somebody_wrote_into_a_body_cannot_be_ended(transactions: Transactions):
    half = transactions.send()
    record = transactions.store.commit_log.record(half.commit_log_offset)
    assert record is not None
    # The body comes 88 bytes after the record's begin; a forged record has to know where it will lie.
    at = transactions.store.commit_log.max_offset + 88
    forged = bytearray(record)
    forged[20:28], forged[28:36] = (1).to_bytes(8, "big"), at.to_bytes(8, "big")
    transactions.store.appender.put_message(message(bytes(forged), "Plain"))
    transactions.store.appender.dispatch()
    assert transactions.at(at).topic == half.topic
    code, remark = refused(transactions, half, commit_log_offset=at, tran_state_table_offset=1)
    assert (code, remark) == (
        ResponseCode.SYSTEM_ERROR,
        f"Find prepared transaction message failed: no message is at commitLogOffset {at}",
    )


async def test_an_unknown_outcome_is_rejected(transactions: Transactions):
    code, remark = refused(transactions, transactions.send(), 5)
    assert (code, remark) == (
        ResponseCode.INVALID_PARAMETER,
        "commitOrRollback is 5; use 8 (commit), 12 (rollback) or 0",
    )


async def test_one_with_an_immunity_may_be_ended_unasked_for_so_long(transactions: Transactions):
    half = transactions.send(CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    transactions.clock.advance(10.001)
    code, remark = refused(transactions, half)
    assert code == ResponseCode.ILLEGAL_OPERATION
    assert "is 10001 ms old, and its producer may end it unasked only for 10000 ms" in remark
    assert transactions.end(half, from_transaction_check=True).code == ResponseCode.SUCCESS


async def test_a_commit_that_cannot_be_stored_leaves_it_open(transactions: Transactions):
    half = transactions.send()
    transactions.store.refusals.set(Refusal.DISK_FULL, "no room")
    assert refused(transactions, half) == (ResponseCode.SERVICE_NOT_AVAILABLE, "[DISK_FULL] no room")
    transactions.store.refusals.clear(Refusal.DISK_FULL)
    assert transactions.end(half).code == ResponseCode.SUCCESS


async def test_a_rejection_without_an_answer_is_logged(transactions: Transactions, caplog: pytest.LogCaptureFixture):
    half = transactions.send()
    refused(transactions, half, oneway=True, producer_group="Stranger")
    assert "END_TRANSACTION of 127.0.0.1:50000 rejected: " in caplog.text
    assert "not of Stranger" in caplog.text


async def test_a_refusal_of_a_long_request_is_logged_in_one_short_line(
    transactions: Transactions, caplog: pytest.LogCaptureFixture
):
    half = transactions.send()
    with pytest.raises(BrokerResponseError):
        transactions.end(half, producer_group="Stranger", oneway=True, transaction_id="\n" * 100_000, msg_id="x\ny")
    (line,) = [record.getMessage() for record in caplog.records if "END_TRANSACTION" in record.getMessage()]
    assert len(line) < 1_000
    assert "\n" not in line


async def test_under_sync_flush_a_commit_is_answered_when_it_is_on_disk(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store", flush_disk_type="SYNC_FLUSH")
    half = transactions.send()
    await transactions.store.flusher.sync()
    header = EndTransactionRequestHeader("PG", half.queue_offset, half.commit_log_offset, COMMIT, "id")
    waiting = transactions.processor.end_transaction(FakeConnection(), request(CODE, header))
    assert not isinstance(waiting, RemotingCommand)
    assert transactions.bodies() == []
    assert (await waiting).code == ResponseCode.SUCCESS
    assert transactions.store.flusher.flushed_offset == transactions.store.commit_log.max_offset
    assert transactions.bodies() == [half.body]
    await transactions.close()


async def test_the_recorded_requests_end_what_they_ended_there(transactions: Transactions):
    """Commit, rollback, unknown, and commit when asked, by a Java client with JSON and with binary headers."""
    recorded = [decoded(frame, EndTransactionRequestHeader) for frame in requests_of(CODE)]
    assert [(each.header.commit_or_rollback, each.header.from_transaction_check) for each in recorded] == [
        (8, False),
        (12, False),
        (0, False),
        (8, True),
    ] * 2
    for command in recorded:
        half = transactions.send(group="PG_Tx")
        header = command.header
        header.tran_state_table_offset, header.commit_log_offset = half.queue_offset, half.commit_log_offset
        answer = transactions.processor.end_transaction(FakeConnection(), command)
        assert isinstance(answer, RemotingCommand)
        assert answer.code == ResponseCode.SUCCESS
    transactions.store.appender.dispatch()
    assert len(transactions.bodies()) == 4
    offsets = transactions.service.half_offsets
    assert [offset for offset in range(8) if offsets.is_open(offset)] == [2, 6]


def test_a_request_without_offsets_is_rejected_by_name():
    route = Route(CODE, lambda _connection, _command: b"", EndTransactionRequestHeader)
    header = b'{"code":37,"opaque":1,"flag":0,"extFields":{"producerGroup":"PG","msgId":"1","commitOrRollback":"8"}}'
    with pytest.raises(Exception, match="tranStateTableOffset"):
        route.decode(0, memoryview(header))
