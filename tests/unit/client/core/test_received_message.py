"""Messages as applications get them."""

import pytest

from rocketbroker.client.core.errors import ClientStateError, InvalidMessageError
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from tests.support.consumer_parts import QUEUE, message


class Settled:
    def __init__(self) -> None:
        self.calls: list[tuple[Outcome, int]] = []

    async def __call__(self, _message: ReceivedMessage, outcome: Outcome, delay_level: int) -> None:
        self.calls.append((outcome, delay_level))


async def test_each_outcome_is_passed_on_once():
    settled = Settled()
    messages = [ReceivedMessage(message(number), QUEUE, "CG", settled) for number in range(3)]
    await messages[0].ack()
    await messages[0].ack()
    await messages[1].retry_later(delay_level=3)
    await messages[2].dead_letter()
    assert settled.calls == [(Outcome.ACKNOWLEDGED, 0), (Outcome.RETRIED, 3), (Outcome.DEAD, -1)]
    with pytest.raises(ClientStateError, match="was already acknowledged; settle each message once"):
        await messages[0].retry_later()


async def test_a_negative_level_is_rejected():
    received = ReceivedMessage(message(0), QUEUE, "CG", Settled())
    with pytest.raises(InvalidMessageError, match=r"delay_level is -1; .* call dead_letter"):
        await received.retry_later(delay_level=-1)


def test_a_retry_shows_the_topic_it_was_sent_to():
    retry = message(4, b"x", "%RETRY%CG", RETRY_TOPIC="Orders", KEYS="a b", TAGS="paid", UNIQ_KEY="id")
    received = ReceivedMessage(retry, QUEUE, "CG", Settled())
    assert (received.topic, received.keys, received.tags, received.msg_id) == ("Orders", "a b", "paid", "id")
    assert (received.body, received.queue_offset, received.reconsume_times) == (b"x", 4, 0)
    assert (received.born_timestamp, received.store_timestamp) == (1, 2)
    assert received.properties["RETRY_TOPIC"] == "Orders"
    assert repr(received) == "<ReceivedMessage id Orders broker-a/0@4>"


def test_a_message_without_an_id_of_its_producer_has_that_of_the_broker():
    received = ReceivedMessage(message(4), QUEUE, "CG", Settled())
    assert (received.msg_id, received.keys) == (received.message_ext.offset_msg_id, None)


def test_a_message_shows_its_priority():
    messages = [message(0), message(0, _SYS_MSG_PRIORITY_="7")]
    assert [ReceivedMessage(each, QUEUE, "CG", Settled()).priority for each in messages] == [None, 7]
