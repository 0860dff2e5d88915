import pytest

from rocketbroker.broker.transaction.transactional_message_service import HalfOffsets
from rocketbroker.store.commitlog.put_message import PutMessageStatus, Refusal
from tests.support.stores import read_queue
from tests.support.transactions import GROUP, HALF_TOPIC, OP_TOPIC, ROLLBACK, STORE_HOST, Transactions

KEY = (b"PG", b"1", 5)


def test_the_position_moves_over_what_is_ended_in_order():
    offsets = HalfOffsets(3, 7)
    offsets.end(5)
    offsets.end(4)
    assert (offsets.position, offsets.ended) == (3, {4, 5})
    assert [offset for offset in range(8) if offsets.is_open(offset)] == [3, 6, 7]
    offsets.end(3)
    assert (offsets.position, offsets.ended) == (6, set())


def test_a_copy_stands_for_its_transaction_until_it_is_ended():
    offsets = HalfOffsets()
    offsets.put_back(0, 9, KEY)
    assert (offsets.position, offsets.copies) == (1, {KEY: 9})
    offsets.end(9, KEY)
    assert not offsets.copies
    assert not offsets.is_open(9)


def test_an_op_message_is_needed_while_the_position_is_before_what_it_ends():
    offsets = HalfOffsets(0, 10)
    assert offsets.op_position == 10
    offsets.op_written(10, [2, 1])
    offsets.op_written(11, [3])
    offsets.end(1)
    offsets.end(2)
    assert offsets.op_position == 10
    offsets.end(0)
    assert (offsets.position, offsets.op_position) == (3, 11)
    offsets.end(3)
    assert offsets.op_position == 12


def test_messages_removed_from_the_queue_are_skipped():
    offsets = HalfOffsets()
    for offset in (1, 4, 5, 7):
        offsets.end(offset)
    offsets.skip_to(4)
    assert (offsets.position, offsets.ended) == (6, {7})
    offsets.skip_to(2)
    assert offsets.position == 6


async def test_ended_transactions_are_noted_together_after_the_interval(transactions: Transactions):
    first, second = transactions.send(), transactions.send()
    transactions.end(first)
    transactions.clock.advance(2.9)
    transactions.end(second, ROLLBACK)
    transactions.service.tick()
    assert transactions.ops() == []
    transactions.clock.advance(0.2)
    transactions.service.tick()
    assert transactions.ops() == [], "what they rest on is not on disk"
    transactions.store.flusher.flush()
    transactions.service.tick()
    assert transactions.ops() == [b"0,1,"]
    transactions.service.tick()
    assert transactions.ops() == [b"0,1,"]
    (op,) = read_queue(transactions.store, OP_TOPIC, 0)
    assert (op.properties, op.born_host, op.sys_flag) == ({"WAIT": "true", "TAGS": "d"}, STORE_HOST, 0)


async def test_a_list_of_full_length_is_noted_at_once(tmp_path):
    transactions = await Transactions.open(tmp_path / "store", settings={"transaction_op_msg_max_size": 5})
    for half in [transactions.send() for _ in range(5)]:
        transactions.end(half, ROLLBACK)
        transactions.store.flusher.flush()
    assert transactions.ops() == [b"0,1,2,"]
    transactions.write_ops()
    assert transactions.ops() == [b"0,1,2,", b"3,4,"]
    await transactions.close()
    assert transactions.committed() == {HALF_TOPIC: 5, OP_TOPIC: 2}


@pytest.mark.proves("When the store is opened", "7. transactions")
async def test_progress_moves_once_all_that_it_rests_on_is_on_disk(transactions: Transactions):
    transactions.end(transactions.send())
    transactions.service.keep_progress()
    assert transactions.committed() == {}
    transactions.store.flusher.flush()
    transactions.service.keep_progress()
    assert transactions.committed() == {HALF_TOPIC: 1, OP_TOPIC: 0}


async def test_an_op_message_is_kept_until_the_half_messages_before_it_are_dealt_with(transactions: Transactions):
    first, second = transactions.send(), transactions.send()
    transactions.end(second)
    transactions.write_ops()
    transactions.sync()
    assert transactions.committed() == {}, "nothing has moved"
    transactions.end(first)
    transactions.write_ops()
    transactions.sync()
    assert transactions.ops() == [b"1,", b"0,"]
    assert transactions.committed() == {HALF_TOPIC: 2, OP_TOPIC: 2}


async def test_a_broker_that_has_no_transactions_commits_nothing(transactions: Transactions):
    transactions.sync()
    assert transactions.offsets.topics_of(GROUP) == set()


async def test_op_messages_that_the_store_rejects_wait_and_are_logged_once(
    transactions: Transactions, caplog: pytest.LogCaptureFixture
):
    half = transactions.send()
    transactions.end(half)
    transactions.store.refusals.set(Refusal.DISK_FULL, "no room")
    for _ in range(3):
        transactions.write_ops()
    assert [record.getMessage() for record in caplog.records] == [
        "op messages of 1 ended transactions could not be stored: PutMessageStatus.DISK_FULL no room; retrying"
    ]
    transactions.store.refusals.clear(Refusal.DISK_FULL)
    transactions.write_ops()
    assert transactions.ops() == [b"0,"]


async def test_what_a_stop_could_not_write_is_looked_for_by_the_next_start(tmp_path):
    transactions = await Transactions.open(tmp_path / "store")
    half = transactions.send()
    transactions.end(half)
    transactions.store.refusals.set(Refusal.DISK_FULL, "no room")
    await transactions.close()
    again = await Transactions.open(tmp_path / "store", transactions.clock)
    assert again.service.open_offset(half) is None, "it would be committed twice"
    await again.close()


async def test_closing_writes_what_is_known(transactions: Transactions):
    transactions.end(transactions.send())
    await transactions.service.close()
    assert transactions.ops() == [b"0,"]
    assert transactions.committed() == {HALF_TOPIC: 1, OP_TOPIC: 1}


async def test_a_transaction_is_open_until_it_is_ended(transactions: Transactions):
    half = transactions.send()
    service = transactions.service
    assert service.open_offset(half) == 0
    assert service.open_copy(half) is None
    service.end(half, 0)
    assert service.open_offset(half) is None


async def test_a_resumed_transaction_is_open_by_its_copy(transactions: Transactions):
    half = transactions.send()
    assert transactions.service.resume(half, 0).status is PutMessageStatus.PUT_OK
    transactions.store.appender.dispatch()
    assert transactions.service.open_offset(half) == transactions.service.open_copy(half) == 1
    assert transactions.halves()[1].get_property("TRANSACTION_CHECK_TIMES") == "0"
    transactions.write_ops()
    assert transactions.ops() == [b"0,"]
