"""Whatever was acknowledged is delivered, though its copies are larger than it, or than a limit set since."""

from collections.abc import Awaitable, Callable

import pytest

from rocketbroker.client import (
    AdminClient,
    BrokerResponseError,
    LocalTransactionState,
    Message,
    PushConsumer,
    ReceivedMessage,
    TransactionProducer,
)
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.testing import RocketMQServer

pytestmark = pytest.mark.timeout(180)

COMMIT, UNKNOWN = LocalTransactionState.COMMIT_MESSAGE, LocalTransactionState.UNKNOWN
# The timer stores a message again each time that a window of two slots is over.
SETTINGS = {"timerRollWindowSlot": "2", "transactionCheckMax": "100", "transactionCheckInterval": "1000"}
HOUR_MS = 3_600_000
NAMES = "Level", "Timer", "Committed", "Checked", "Retried"
Send = Callable[[str, bytes, dict[str, str]], Awaitable[object]]


def commit(_message: MessageExt) -> LocalTransactionState:
    return COMMIT


async def fail(_message: ReceivedMessage) -> None:
    raise ValueError("no such order")


def sender(producer: TransactionProducer) -> Send:
    """Return a function that sends a message to a topic of ``NAMES``, in the way that its name says."""

    async def send(topic: str, body: bytes, properties: dict[str, str]) -> object:
        message = Message(
            topic,
            body,
            properties=properties,
            delay_time_level=18 * (topic == "Level"),
            delay_time_ms=HOUR_MS * (topic == "Timer"),
        )
        if topic not in {"Committed", "Checked"}:
            return await producer.send(message)
        return await producer.send_in_transaction(message, lambda _: COMMIT if topic == "Committed" else UNKNOWN)

    return send


async def delivered(mq: RocketMQServer, sent: dict[str, list[bytes]]) -> None:
    """Wait until the copies of all messages are where they belong, and the retried ones among the dead letters."""

    def all_are_there() -> None:
        mq.clock.advance(600)
        for topic, bodies in sent.items():
            found = mq.dead_letters("billing") if topic == "Retried" else mq.messages(topic)
            assert sorted(message.body for message in found) == sorted(bodies), topic

    await mq.eventually(all_are_there, within_s=90)


async def test_messages_above_a_limit_that_was_lowered_are_delivered():
    async with (
        RocketMQServer(SETTINGS) as mq,
        AdminClient(mq.namesrv_addr) as admin,
        TransactionProducer("payments", mq.namesrv_addr, check=commit, retry_times_when_send_failed=0) as producer,
        PushConsumer("billing", mq.namesrv_addr, handler=fail, max_reconsume_times=2) as consumer,
    ):
        send, body = sender(producer), bytes(4000)
        for topic in NAMES[:-2]:
            await send(topic, body, {})

        async def lower(_message: Message) -> LocalTransactionState:
            await admin.update_broker_config(mq.broker_addr, {"maxMessageSize": "3000"})
            return UNKNOWN

        await send("Retried", body, {})
        await producer.send_in_transaction(Message("Checked", body), lower)
        with pytest.raises(BrokerResponseError, match="a body of 4,000 bytes exceeds the limit of 3,000"):
            await send("Level", body, {})
        await consumer.subscribe("Retried")

        await delivered(mq, {topic: [body] for topic in NAMES})


@pytest.mark.parametrize("topic", NAMES)
async def test_the_longest_properties_that_are_acknowledged_have_room_for_those_of_copies(topic: str):
    async with (
        RocketMQServer(SETTINGS) as mq,
        TransactionProducer("payments", mq.namesrv_addr, check=commit, retry_times_when_send_failed=0) as producer,
        PushConsumer("billing", mq.namesrv_addr, handler=fail, max_reconsume_times=2) as consumer,
    ):
        send = sender(producer)
        acknowledged: list[bytes] = []
        # Lengths of a value: one that is acknowledged, and one that is not.
        shortest, longest, refusal = 30_000, 32_767, ""
        while longest - shortest > 1:
            length = (shortest + longest) // 2
            body = b"%d" % length
            try:
                await send(topic, body, {"p": "v" * length})
            except BrokerResponseError as error:
                refusal = str(error)
                longest = length
            else:
                acknowledged.append(body)
                shortest = length
        assert "bytes; the limit is 31,743; put long values into the body" in refusal
        await consumer.subscribe("Retried")

        await delivered(mq, {topic: acknowledged})
