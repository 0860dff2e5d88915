"""Loops over messages: what becomes of each when the loop goes on, is left, or raises."""

import sys

import pytest

from rocketbroker.client.consumer.message_iterator import LeftMessages, MessageIterator
from rocketbroker.client.consumer.received_message import Outcome, ReceivedMessage
from tests.support.consumer_parts import QUEUE, message


class Source:
    def __init__(self, number: int) -> None:
        self.outcomes: dict[int, Outcome] = {}
        self.left = LeftMessages()
        self._messages = [ReceivedMessage(message(at), QUEUE, "CG", self._settle) for at in range(number)]

    async def _settle(self, received: ReceivedMessage, outcome: Outcome, _delay_level: int) -> None:
        self.outcomes[received.queue_offset] = outcome

    async def _take(self) -> ReceivedMessage | None:
        return self._messages.pop(0) if self._messages else None

    def __aiter__(self) -> MessageIterator:
        return MessageIterator(self._take, self.left)


async def test_asking_for_the_next_message_acknowledges_the_one_before():
    source = Source(3)
    async for received in source:
        if received.queue_offset == 1:
            await received.dead_letter()
        assert received.queue_offset not in source.outcomes or received.queue_offset == 1
    assert source.outcomes == {0: Outcome.ACKNOWLEDGED, 1: Outcome.DEAD, 2: Outcome.ACKNOWLEDGED}


async def test_a_break_acknowledges_at_the_next_loop():
    source = Source(2)
    async for _ in source:
        break
    assert source.outcomes == {}
    async for _ in source:
        assert source.outcomes == {0: Outcome.ACKNOWLEDGED}


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
async def test_an_error_gives_the_message_back_when_the_consumer_is_closed(kind: type[BaseException]):
    source = Source(2)

    async def consume() -> None:
        try:
            async for _ in source:
                raise kind
        finally:
            await source.left.settle(sys.exception())

    with pytest.raises(kind):
        await consume()
    assert source.outcomes == ({0: Outcome.RETRIED} if kind is ValueError else {})
