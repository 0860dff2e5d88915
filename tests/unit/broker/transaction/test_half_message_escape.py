"""Open transactions of an acting master go to another master, each once and in order."""

import pytest

from rocketbroker.broker.transaction.half_message_escape import HalfMessageEscape
from rocketbroker.broker.transaction.transactional_message_util import is_transaction
from rocketbroker.codec.message.message_properties import decode_properties
from rocketbroker.codec.message.message_sys_flag import transaction_value
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from tests.support.damage import overwrite
from tests.support.running import running
from tests.support.stores import message
from tests.support.transactions import GROUP, HALF_TOPIC, STORE_HOST, Transactions
from tests.support.waiting import until


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
