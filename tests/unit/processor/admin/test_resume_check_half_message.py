import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.headers.message import ResumeCheckHalfMessageRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.resume_check_half_message import ResumeCheckHalfMessageProcessor
from rocketbroker.store.commitlog.put_message import Refusal
from tests.support.processor_calls import call_async, recorded, refusal_async
from tests.support.stores import message, put_forged, read_queue
from tests.support.transactions import CHECK_MAX_TOPIC, COMMIT, ROLLBACK, Transactions

CODE = 323


@pytest.fixture
async def transactions(tmp_path: Path) -> AsyncIterator[Transactions]:
    found = await Transactions.open(tmp_path / "store", settings={"transaction_check_max": 1})
    yield found
    await found.close()


def make(transactions: Transactions) -> ResumeCheckHalfMessageProcessor:
    store = transactions.store
    return ResumeCheckHalfMessageProcessor(store.appender, store.queries, store.acknowledgements, transactions.service)


@pytest.fixture
def processor(transactions: Transactions) -> ResumeCheckHalfMessageProcessor:
    return make(transactions)


def header(msg_id: str | None) -> ResumeCheckHalfMessageRequestHeader:
    return ResumeCheckHalfMessageRequestHeader("T", msg_id)


async def given_up(transactions: Transactions) -> MessageExt:
    transactions.send(b"given up")
    await transactions.check()
    await transactions.check()
    (found,) = read_queue(transactions.store, CHECK_MAX_TOPIC, 0)
    return found


async def test_a_discarded_transaction_is_checked_again_and_may_be_committed(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    message = await given_up(transactions)
    assert (await call_async(processor.process, header(message.offset_msg_id))).code == ResponseCode.SUCCESS
    producer = transactions.producer("one")
    await transactions.check(0.001)
    (copy,) = transactions.asked(producer)
    assert copy.get_property("TRANSACTION_CHECK_TIMES") == "1"
    transactions.end(copy, from_transaction_check=True)
    assert transactions.bodies() == [b"given up"]


async def test_one_that_is_asked_for_again_already_is_rejected(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    message = await given_up(transactions)
    await call_async(processor.process, header(message.offset_msg_id))
    code, remark = await refusal_async(processor.process, header(message.offset_msg_id))
    assert (code, remark) == (ResponseCode.SYSTEM_ERROR, f"transaction {message.uniq_key} is being checked already")


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_a_resumed_transaction_that_has_ended_is_rejected(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor, outcome: int
):
    message = await given_up(transactions)
    await call_async(processor.process, header(message.offset_msg_id))
    (_, _, copy) = transactions.halves()
    transactions.end(copy, outcome)
    bodies = transactions.bodies()
    code, remark = await refusal_async(processor.process, header(message.offset_msg_id))
    assert code == ResponseCode.SYSTEM_ERROR
    assert f"transaction {message.uniq_key} was resumed as half message 2 and has ended" in remark
    assert len(transactions.halves()) == 3
    assert transactions.bodies() == bodies


async def test_a_transaction_discarded_twice_is_resumed_by_its_last_message(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    first = await given_up(transactions)
    await call_async(processor.process, header(first.offset_msg_id))
    await transactions.check()
    await transactions.check()
    (_, last) = read_queue(transactions.store, CHECK_MAX_TOPIC, 0)
    code, remark = await refusal_async(processor.process, header(first.offset_msg_id))
    assert (code, "name its last message in TRANS_CHECK_MAX_TIME_TOPIC" in remark) == (1, True)
    assert (await call_async(processor.process, header(last.offset_msg_id))).code == ResponseCode.SUCCESS
    transactions.end(transactions.halves()[-1])
    assert transactions.bodies() == [b"given up"]


async def test_of_two_requests_at_a_time_one_is_rejected(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    message = await given_up(transactions)
    calls = [call_async(processor.process, header(message.offset_msg_id)) for _ in range(2)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert len(transactions.halves()) == 3
    assert sorted(isinstance(each, BrokerResponseError) for each in answers) == [False, True]


async def test_another_transaction_with_the_same_unique_id_is_resumed(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    message = await given_up(transactions)
    transactions.send(group="Other", UNIQ_KEY=message.uniq_key or "")
    assert (await call_async(processor.process, header(message.offset_msg_id))).code == ResponseCode.SUCCESS


async def test_the_checks_of_an_open_one_restart(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    half = transactions.send()
    await transactions.check()
    (_, copy) = transactions.halves()
    assert (await call_async(processor.process, header(copy.offset_msg_id))).code == ResponseCode.SUCCESS
    assert transactions.service.open_offset(half) == 2
    await transactions.check()
    assert read_queue(transactions.store, CHECK_MAX_TOPIC, 0) == []
    assert transactions.halves()[3].get_property("TRANSACTION_CHECK_TIMES") == "1"


async def test_a_transaction_that_is_not_open_is_rejected(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    ended = transactions.send()
    transactions.end(ended)
    plain = transactions.at(transactions.store.appender.put_message(message(b"x", "Plain")).physical_offset)
    transactions.store.appender.dispatch()
    beyond = plain.offset_msg_id[:16] + f"{2**62:016X}"
    before = transactions.store.commit_log.max_offset
    for msg_id, why in (
        (ended.offset_msg_id, "is not open: it was committed, rolled back or discarded already"),
        (plain.offset_msg_id, f"the message at {plain.commit_log_offset} is of topic Plain"),
        (beyond, "no message is at 4611686018427387904, which msgId names"),
        ("F" * 32, "no message is at -1"),
        ("x", "msgId is wrong: 'x' is not an offset message id"),
        (None, "msgId is wrong"),
    ):
        code, remark = await refusal_async(processor.process, header(msg_id))
        assert code == ResponseCode.SYSTEM_ERROR
        assert why in remark
    assert transactions.store.commit_log.max_offset == before


async def test_a_half_message_forged_in_a_body_is_not_resumed(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    message = await given_up(transactions)
    record = transactions.store.commit_log.record(message.commit_log_offset)
    assert record is not None
    forged = put_forged(transactions.store, record)

    _, remark = await refusal_async(processor.process, header(transactions.at(forged).offset_msg_id))

    assert f"no message is at {forged}, which msgId names" in remark


async def test_a_transaction_that_cannot_be_stored_stays_discarded(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    message = await given_up(transactions)
    transactions.store.refusals.set(Refusal.DISK_FULL, "no room")
    code, remark = await refusal_async(processor.process, header(message.offset_msg_id))
    assert (code, remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "[DISK_FULL] no room")
    transactions.store.refusals.clear(Refusal.DISK_FULL)
    assert transactions.service.open_copy(message) is None


async def test_under_sync_flush_the_answer_waits_for_the_disk(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "sync", flush_disk_type="SYNC_FLUSH")
    half = transactions.send()
    await transactions.store.flusher.sync()
    processor = make(transactions)
    assert (await call_async(processor.process, header(half.offset_msg_id))).code == ResponseCode.SUCCESS
    assert transactions.store.flusher.flushed_offset == transactions.store.commit_log.max_offset
    await transactions.close()


async def test_the_recorded_requests_are_rejected(
    transactions: Transactions, processor: ResumeCheckHalfMessageProcessor
):
    """They name an ordinary message, which Apache RocketMQ put into the half topic nevertheless."""
    transactions.store.appender.put_message(message(b"first", "GoldenTopic"))
    transactions.store.appender.dispatch()
    requests = [command for command, _ in recorded(CODE, ResumeCheckHalfMessageRequestHeader)]
    assert len(requests) == 3
    for command in requests:
        code, remark = await refusal_async(processor.process, command.header)
        assert (code, "is of topic GoldenTopic" in remark) == (ResponseCode.SYSTEM_ERROR, True)
