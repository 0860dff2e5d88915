"""Half messages that a starting broker finds open: after a clean stop, after a kill, in recorded stores."""

from pathlib import Path

import pytest

from rocketbroker.broker.transaction.half_messages import HalfMessageEscape, messages_of_transaction
from rocketbroker.broker.transaction.transactional_message_util import is_transaction
from rocketbroker.codec.message.message_const import transaction_value
from rocketbroker.codec.message.message_properties import decode_properties, encode_properties
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from tests.support.damage import overwrite
from tests.support.golden_store import unpack
from tests.support.replicas import log_bytes
from tests.support.running import running
from tests.support.stores import make_store, message
from tests.support.transactions import COMMIT, GROUP, HALF_TOPIC, OP_TOPIC, ROLLBACK, STORE_HOST, Transactions
from tests.support.waiting import until

pytestmark = [
    pytest.mark.proves("When the store is opened", "7. transactions"),
    pytest.mark.proves("Transactions", "a broker killed between half message and commit; what is committed comes once"),
]


async def test_half_messages_and_real_message_are_found_by_their_transaction(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store")
    half = transactions.send()
    transactions.send(group="Other", UNIQ_KEY=half.uniq_key or "")
    await transactions.check()
    transactions.end(half)
    (_, _, copy, _) = transactions.halves()
    found = await messages_of_transaction(transactions.store.queries, half, HALF_TOPIC)
    assert [each.queue_offset for each in found] == [copy.queue_offset, half.queue_offset]
    (real,) = await messages_of_transaction(transactions.store.queries, half, "T")
    assert (real.topic, real.body) == ("T", half.body)
    await transactions.close()


async def test_nothing_is_found_without_the_index(tmp_path: Path):
    transactions = await Transactions.open(tmp_path / "store", message_index_enable=False)
    half = transactions.send()
    assert await messages_of_transaction(transactions.store.queries, half, HALF_TOPIC) == []
    await transactions.close()


async def reopened(transactions: Transactions, **store_settings) -> Transactions:
    """The broker stopped in order and started again."""
    await transactions.close()
    return await Transactions.open(transactions.root, transactions.clock, transactions.committed(), **store_settings)


def open_bodies(transactions: Transactions) -> list[bytes]:
    offsets = transactions.service.half_offsets
    return [half.body for half in transactions.halves() if offsets.is_open(half.queue_offset)]


async def test_open_transactions_are_open_after_a_restart(tmp_path: Path):
    before = await Transactions.open(tmp_path / "store")
    halves = [before.send() for _ in range(5)]
    before.end(halves[0])
    before.end(halves[2])
    before.end(halves[3], ROLLBACK)
    after = await reopened(before)
    assert open_bodies(after) == [halves[1].body, halves[4].body]
    assert after.committed() == {HALF_TOPIC: 1, OP_TOPIC: 0}
    assert after.end(halves[4]).code == 0
    assert after.bodies() == [halves[0].body, halves[2].body, halves[4].body]
    await after.close()


async def test_a_copy_is_known_after_a_restart(tmp_path: Path):
    before = await Transactions.open(tmp_path / "store")
    half = before.send()
    await before.check()
    after = await reopened(before)
    assert after.service.open_offset(half) == 1
    assert after.end(half).code == 0
    assert after.bodies() == [half.body]
    await after.close()


@pytest.mark.parametrize("outcome", [COMMIT, ROLLBACK])
async def test_a_transaction_that_is_half_done_at_a_kill_is_asked_for(tmp_path: Path, outcome: int):
    """Killed between half message and outcome."""
    before = await Transactions.open(tmp_path / "store")
    half = before.send()
    after = await before.killed(tmp_path / "killed", before.committed())
    producer = after.producer("one")
    await after.check()
    (copy,) = after.asked(producer)
    after.end(copy, outcome, from_transaction_check=True)
    assert after.bodies() == ([half.body] if outcome == COMMIT else [])
    await after.check(100)
    assert after.asked(producer) == []
    for each in (before, after):
        await each.close()


async def test_a_commit_that_no_op_message_knows_of_is_found_after_a_kill(tmp_path: Path):
    before = await Transactions.open(tmp_path / "store")
    committed, rolled_back, still_open = (before.send() for _ in range(3))
    before.end(committed)
    before.end(rolled_back, ROLLBACK)
    assert before.ops() == []
    after = await before.killed(tmp_path / "killed", before.committed())
    assert open_bodies(after) == [rolled_back.body, still_open.body], "a rollback is asked for again"
    after.write_ops()
    assert after.ops() == [b"0,"]
    producer = after.producer("one")
    await after.check()
    assert [copy.body for copy in after.asked(producer)] == [rolled_back.body, still_open.body]
    assert after.bodies() == [committed.body], "it comes once"
    for each in (before, after):
        await each.close()


async def test_a_change_of_role_finds_what_became_of_transactions_meanwhile(tmp_path: Path):
    master = await Transactions.open(tmp_path / "master")
    ended, committed, still_open = (master.send() for _ in range(3))
    master.end(ended)
    master.write_ops()
    master.end(committed)
    slave = await Transactions.open(tmp_path / "slave")
    await slave.checks.start()
    await slave.checks.stop()
    copy = slave.store.make_replica_log()
    await copy.start()
    copy.append(0, log_bytes(master.store))
    await copy.stop()

    await slave.checks.start()

    assert open_bodies(slave) == [still_open.body]
    await slave.checks.stop()
    await slave.checks.start()
    assert open_bodies(slave) == [still_open.body], "the op message of the commit need not be written yet"
    for each in (master, slave):
        await each.close()


async def test_a_promoted_slave_looks_for_commits_although_it_stopped_cleanly(tmp_path: Path):
    master = await Transactions.open(tmp_path / "master")
    committed, still_open = (master.send() for _ in range(2))
    master.end(committed)
    assert master.ops() == []
    slave = make_store(tmp_path / "slave", master.clock)
    await slave.start()
    copy = slave.make_replica_log()
    await copy.start()
    copy.append(0, log_bytes(master.store))
    await copy.stop()
    await slave.stop()

    promoted = await Transactions.open(tmp_path / "slave", master.clock, master.committed())

    assert promoted.store.lock.was_clean
    assert open_bodies(promoted) == [still_open.body]
    for each in (master, promoted):
        await each.close()


async def test_without_the_index_such_a_commit_is_asked_for_again(tmp_path: Path):
    before = await Transactions.open(tmp_path / "store", message_index_enable=False)
    half = before.send()
    before.end(half)
    after = await before.killed(tmp_path / "killed", before.committed(), message_index_enable=False)
    assert open_bodies(after) == [half.body]
    for each in (before, after):
        await each.close()


async def test_a_copy_that_the_offsets_do_not_know_of_is_open_alone_after_a_kill(tmp_path: Path):
    before = await Transactions.open(tmp_path / "store")
    half = before.send()
    stale = before.committed()
    await before.check()
    await before.check()
    after = await before.killed(tmp_path / "killed", stale)
    assert after.service.half_offsets.position == 2
    assert after.service.open_offset(half) == 2
    producer = after.producer("one")
    await after.check()
    assert len(after.asked(producer)) == 1
    for each in (before, after):
        await each.close()


async def test_a_half_message_whose_copy_was_committed_is_ended_after_a_kill(tmp_path: Path):
    before = await Transactions.open(tmp_path / "store")
    half = before.send()
    stale = before.committed()
    await before.check()
    before.end(half)
    before.write_ops()
    assert before.ops() == [b"1,"]
    after = await before.killed(tmp_path / "killed", stale)
    assert open_bodies(after) == []
    assert after.service.open_offset(half) is None
    for each in (before, after):
        await each.close()


async def test_two_transactions_with_one_id_are_two(tmp_path: Path):
    """A client may use an id twice; neither is taken for a copy of the other."""
    before = await Transactions.open(tmp_path / "store")
    before.send(b"one", UNIQ_KEY="SAME")
    before.send(b"two", UNIQ_KEY="SAME")
    before.clock.advance(1)
    third = before.send(b"three", UNIQ_KEY="SAME")
    before.end(third)
    after = await before.killed(tmp_path / "killed")
    assert open_bodies(after) == [b"one", b"two"]
    for each in (before, after):
        await each.close()


async def test_progress_beyond_the_end_is_set_back(tmp_path: Path, caplog):
    before = await Transactions.open(tmp_path / "store")
    before.end(before.send())
    await before.close()
    after = await Transactions.open(before.root, before.clock, {HALF_TOPIC: 9, OP_TOPIC: 9})
    assert "is set back from 9 to its end, 1" in caplog.text
    half = after.send()
    assert after.service.open_offset(half) == 1
    after.sync()
    assert after.committed() == {HALF_TOPIC: 1, OP_TOPIC: 1}
    await after.close()


async def test_a_foreign_op_message_ends_nothing(tmp_path: Path, caplog):
    before = await Transactions.open(tmp_path / "store")
    half = before.send()
    for tag, body in (("x", b"0,"), ("d", b"zero,"), ("d", b"")):
        before.store.appender.put_message(message(body, OP_TOPIC, 0, properties=encode_properties({"TAGS": tag})))
    after = await reopened(before)
    assert open_bodies(after) == [half.body]
    assert "op message 0 is skipped: its tag is 'x' instead of 'd'" in caplog.text
    assert "op message 1 is skipped" in caplog.text
    await after.close()


@pytest.mark.parametrize(("name", "committed"), [("clean", {HALF_TOPIC: 4, OP_TOPIC: 2}), ("kill9", {}), ("clean", {})])
async def test_no_transaction_of_a_recorded_store_is_asked_for_again(
    tmp_path: Path, name: str, committed: dict[str, int]
):
    """Not with the offsets that RocketMQ wrote, nor with none: all was ended, the one that was put back too."""
    root = unpack(name, tmp_path / "golden")
    transactions = await Transactions.open(root, None, committed)
    assert len(transactions.halves()) == 4
    assert open_bodies(transactions) == []
    assert transactions.service.half_offsets.op_position == 2
    await transactions.close()


class OtherMaster:
    """Takes messages while ``takes`` is true; nothing is sent to it unless ``may_get`` is."""

    def __init__(self) -> None:
        self.takes = self.may_get = True
        self.got: list[MessageExtBrokerInner] = []

    @property
    def bodies(self) -> list[bytes]:
        return [bytes(each.body) for each in self.got]

    async def put(self, each: MessageExtBrokerInner) -> PutMessageResult:
        if not self.takes:
            return PutMessageResult(PutMessageStatus.SLAVE, reason="no other master takes it")
        self.got.append(each)
        return PutMessageResult(PutMessageStatus.PUT_OK)


@pytest.fixture
def other() -> OtherMaster:
    return OtherMaster()


@pytest.fixture
def escape(transactions: Transactions, other: OtherMaster) -> HalfMessageEscape:
    store = transactions.store
    config = transactions.config.model_copy(update={"transaction_check_interval": 10})
    return HalfMessageEscape(
        transactions.service,
        transactions.recovery.run,
        store.queues,
        store.queries,
        transactions.offsets,
        other.put,
        config,
        STORE_HOST,
        lambda: other.may_get,
    )


async def test_nothing_is_sent_while_another_broker_may_deal_with_it(
    transactions: Transactions, other: OtherMaster, escape: HalfMessageEscape
):
    transactions.send(b"open")
    other.may_get = False
    await escape.send_open()
    assert other.bodies == []
    assert transactions.offsets.query(GROUP, HALF_TOPIC, 0) == -1

    other.may_get = True
    await escape.send_open()
    assert other.bodies == [b"open"]


async def test_open_half_messages_are_sent_as_their_producers_sent_them(
    transactions: Transactions, other: OtherMaster, escape: HalfMessageEscape
):
    transactions.send(b"ended")
    transactions.end(transactions.halves()[0])
    transactions.send(b"open", TAGS="B")

    await escape.send_open()

    assert other.bodies == [b"open"]
    [sent] = other.got
    assert (sent.topic, sent.queue_id, transaction_value(sent.sys_flag)) == ("T", 1, 4)
    assert is_transaction(sent)
    properties = decode_properties(sent.properties)
    assert (properties["PGROUP"], properties["TAGS"]) == ("PG", "B")
    assert not properties.keys() & {"REAL_TOPIC", "REAL_QID"}
    assert transactions.offsets.query(GROUP, HALF_TOPIC, 0) == 2


async def test_a_message_that_no_master_takes_waits_with_all_after_it(
    transactions: Transactions, other: OtherMaster, escape: HalfMessageEscape
):
    transactions.send(b"first")
    transactions.send(b"second")
    other.takes = False
    await escape.send_open()
    assert transactions.offsets.query(GROUP, HALF_TOPIC, 0) == -1

    other.takes = True
    await escape.send_open()
    await escape.send_open()

    assert other.bodies == [b"first", b"second"]
    assert transactions.offsets.query(GROUP, HALF_TOPIC, 0) == 2
    assert transactions.ops() == [], "a slave writes nothing"


async def test_a_message_without_a_real_topic_is_skipped(
    transactions: Transactions, other: OtherMaster, escape: HalfMessageEscape, caplog: pytest.LogCaptureFixture
):
    transactions.store.appender.put_message(message(b"lost", HALF_TOPIC, 0))
    transactions.send(b"open")

    await escape.send_open()

    assert other.bodies == [b"open"]
    assert "half message 0 is skipped" in caplog.text


async def test_a_damaged_message_waits_for_the_master_with_all_after_it(
    transactions: Transactions, other: OtherMaster, escape: HalfMessageEscape, caplog: pytest.LogCaptureFixture
):
    transactions.send(b"before")
    damaged = transactions.send(b"damaged")
    transactions.send(b"behind")
    [file] = transactions.store.commit_log.queue.files
    # A byte of the body.
    overwrite(file, damaged.commit_log_offset + 90, b"?")

    await escape.send_open()
    await escape.send_open()

    assert other.bodies == [b"before"]
    assert transactions.offsets.query(GROUP, HALF_TOPIC, 0) == 1
    assert caplog.text.count("half messages from 1 on wait for the master") == 1


async def test_messages_that_this_slave_never_had_wait_for_the_master(
    transactions: Transactions, other: OtherMaster, escape: HalfMessageEscape
):
    for body in (b"missing", b"first"):
        transactions.send(body)
    queue = transactions.store.queues.find(HALF_TOPIC, 0)
    assert queue is not None
    queue.min_offset = 1
    await transactions.recovery.run()
    await escape.send_open()
    assert (other.bodies, transactions.offsets.query(GROUP, HALF_TOPIC, 0)) == ([], -1)

    transactions.offsets.commit(GROUP, HALF_TOPIC, 0, 1)
    await escape.send_open()
    assert other.bodies == [b"first"]


async def test_they_are_sent_in_each_interval_from_where_the_progress_is(
    transactions: Transactions, other: OtherMaster, escape: HalfMessageEscape
):
    transactions.send(b"before")
    transactions.offsets.commit(GROUP, HALF_TOPIC, 0, 1)
    async with running(escape):
        transactions.send(b"open")
        await until(lambda: other.bodies == [b"open"])
