"""Transactional sends against a broker of our own: outcomes, checks, failures."""

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from rocketbroker.client import (
    ClientInstance,
    ClientStateError,
    HandlerError,
    InvalidMessageError,
    LocalTransactionState,
    Message,
    MessageType,
    OptionError,
    SendFailedError,
    SendStatus,
    TransactionProducer,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer

COMMIT, ROLLBACK, UNKNOWN = (
    LocalTransactionState.COMMIT_MESSAGE,
    LocalTransactionState.ROLLBACK_MESSAGE,
    LocalTransactionState.UNKNOWN,
)
Outcome = LocalTransactionState | Awaitable[LocalTransactionState]


@pytest.fixture
async def mq() -> AsyncIterator[RocketMQServer]:
    async with RocketMQServer({"transactionCheckMax": "10000"}) as server:
        yield server


def never(message: MessageExt) -> LocalTransactionState:
    pytest.fail(f"{message.body!r} was checked")


async def checks(mq: RocketMQServer, condition: Callable[[], bool]) -> None:
    """Let rounds of checks pass until a condition holds: a round that is not over yet counts from its end."""

    def next_round() -> bool:
        mq.clock.advance(31)
        return condition()

    await mq.eventually(next_round)


def later(state: LocalTransactionState) -> Callable[[Message], Awaitable[LocalTransactionState]]:
    async def execute(_message: Message) -> LocalTransactionState:
        await asyncio.sleep(0)
        return state

    return execute


@pytest.mark.parametrize(("state", "bodies"), [(COMMIT, [b"order 7"]), (ROLLBACK, [])])
async def test_a_message_is_seen_only_after_the_commit(
    mq: RocketMQServer, state: LocalTransactionState, bodies: list[bytes]
):
    def execute(message: Message) -> LocalTransactionState:
        assert message.body == b"order 7"
        assert threading.current_thread() is not threading.main_thread()
        mq.assert_messages("Paid", [])
        return state

    async with TransactionProducer("payments", mq.namesrv_addr, check=never) as producer:
        result = await producer.send_in_transaction(Message("Paid", b"order 7", tags="card"), execute)
        assert (result.local_transaction_state, result.msg_type) == (state, MessageType.TRANSACTION)
        await mq.eventually(lambda: mq.assert_messages("Paid", bodies))
        second = await producer.send_in_transaction(Message("Paid", b"order 8"), later(COMMIT))
        assert second.local_transaction_state is COMMIT
        await mq.eventually(lambda: mq.assert_messages("Paid", [*bodies, b"order 8"]))


@pytest.mark.parametrize("is_async", [False, True])
async def test_the_broker_asks_for_an_outcome_that_it_does_not_know(mq: RocketMQServer, is_async: bool):
    checked: list[bytes] = []

    def check(message: MessageExt) -> LocalTransactionState:
        checked.append(message.body)
        return COMMIT if len(checked) > 1 else UNKNOWN

    async def check_later(message: MessageExt) -> LocalTransactionState:
        return check(message)

    async with TransactionProducer(
        "payments", mq.namesrv_addr, check=check_later if is_async else check, clock=mq.clock
    ) as producer:
        await producer.send_in_transaction(Message("Paid", b"order 7"), lambda _message: UNKNOWN)
        await checks(mq, lambda: len(checked) == 2)
        assert set(checked) == {b"order 7"}
        await mq.eventually(lambda: mq.assert_messages("Paid", [b"order 7"]))


async def test_a_check_that_fails_is_repeated(mq: RocketMQServer, caplog: pytest.LogCaptureFixture):
    answers: list[LocalTransactionState | str] = ["no outcome", ROLLBACK]
    async with TransactionProducer(
        "payments",
        mq.namesrv_addr,
        check=lambda _message: answers.pop(0),  # type: ignore[arg-type, return-value]
        clock=mq.clock,
    ) as producer:
        await producer.send_in_transaction(Message("Paid", b"order 7"), lambda _message: UNKNOWN)
        await checks(mq, lambda: not answers)
    assert "check of transaction" in caplog.text
    assert "returned 'no outcome'; return a LocalTransactionState" in caplog.text
    mq.assert_messages("Paid", [])


async def test_a_local_transaction_that_raises_is_checked(mq: RocketMQServer):
    def execute(_message: Message) -> LocalTransactionState:
        raise KeyError("no such order")

    async with TransactionProducer(
        "payments", mq.namesrv_addr, check=lambda _message: COMMIT, clock=mq.clock
    ) as producer:
        with pytest.raises(KeyError, match="no such order"):
            await producer.send_in_transaction(Message("Paid", b"order 7"), execute)
        mq.clock.advance(60)
        await mq.eventually(lambda: mq.assert_messages("Paid", [b"order 7"]))


async def test_a_wrong_outcome_is_an_error_that_names_the_right_one(mq: RocketMQServer):
    async with TransactionProducer("payments", mq.namesrv_addr, check=never) as producer:
        with pytest.raises(HandlerError, match="returned True; return a LocalTransactionState"):
            await producer.send_in_transaction(Message("Paid", b"x"), lambda _message: True)  # type: ignore[arg-type, return-value]


async def test_a_failed_send_runs_no_local_transaction(mq: RocketMQServer):
    mq.faults.answer(ResponseCode.SYSTEM_BUSY, times=None)
    async with TransactionProducer("payments", mq.namesrv_addr, check=never) as producer:
        with pytest.raises(SendFailedError):
            await producer.send_in_transaction(Message("Paid", b"x"), lambda _message: pytest.fail("it ran"))


async def test_a_half_message_that_may_be_lost_is_rolled_back(mq: RocketMQServer):
    async with TransactionProducer("payments", mq.namesrv_addr, check=never) as producer:
        await producer.send_in_transaction(Message("Paid", b"1"), lambda _message: COMMIT)
        mq.faults.drop_answers(times=None)
        with pytest.raises(SendFailedError):
            await producer.send_in_transaction(
                Message("Paid", b"2"), lambda _message: pytest.fail("it ran"), timeout_s=0.5
            )
        mq.faults.clear()
        result = await producer.send_in_transaction(Message("Paid", b"3"), lambda _message: COMMIT)
        assert result.send_status is SendStatus.SEND_OK
        await mq.eventually(lambda: mq.assert_messages("Paid", [b"1", b"3"]))


async def test_what_cannot_be_is_rejected_at_once(mq: RocketMQServer):
    with pytest.raises(OptionError, match="check is 'no'; give a function"):
        TransactionProducer("payments", mq.namesrv_addr, check="no")  # type: ignore[arg-type]
    producer = TransactionProducer("payments", mq.namesrv_addr, check=never)
    with pytest.raises(ClientStateError, match="not started"):
        await producer.send_in_transaction(Message("Paid", b"x"), lambda _message: COMMIT)
    async with producer:
        with pytest.raises(InvalidMessageError, match="cannot be delayed"):
            await producer.send_in_transaction(Message("Paid", b"x", delay_time_level=1), lambda _message: COMMIT)
        with pytest.raises(InvalidMessageError, match="cannot have a priority"):
            await producer.send_in_transaction(Message("Paid", b"x", priority=1), lambda _message: COMMIT)


async def test_a_group_has_one_transaction_producer_on_a_client(mq: RocketMQServer):
    async with ClientInstance(mq.namesrv_addr) as client, TransactionProducer("payments", client=client, check=never):
        with pytest.raises(ClientStateError, match="group payments already has a transaction producer"):
            await TransactionProducer("payments", client=client, check=never).start()
