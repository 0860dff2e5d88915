"""Messages of a consumer for ``async for``."""

import sys
from collections.abc import Awaitable, Callable
from typing import Self

from rocketbroker.client.consumer.received_message import ReceivedMessage


class LeftMessages:
    """Messages that loops have left without an outcome.

    A loop body that was left by ``break`` acknowledges, one that raised gives the message back. No iterator learns
    which of the two it was, so both wait here until the next loop begins or the consumer is closed.
    """

    def __init__(self) -> None:
        self._messages: list[ReceivedMessage] = []

    def add(self, message: ReceivedMessage) -> None:
        """Keep the message of a loop that was left."""
        self._messages.append(message)

    async def settle(self, error: BaseException | None) -> None:
        """Acknowledge the messages, or give them back because of an exception that is being handled."""
        while self._messages:
            message = self._messages.pop()
            if message.outcome is not None:
                continue
            if error is None:
                await message.ack()
            elif isinstance(error, Exception):
                await message.retry_later()


class MessageIterator:
    """Yields messages; asking for the next one acknowledges the one before.

    Args:
        take: waits for the next message; None ends the loop.
        left: takes the last message of a loop that was left.
    """

    def __init__(self, take: Callable[[], Awaitable[ReceivedMessage | None]], left: LeftMessages) -> None:
        self._take = take
        self._left = left
        self._current: ReceivedMessage | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        current, self._current = self._current, None
        if current is None:
            await self._left.settle(sys.exception())
        elif current.outcome is None:
            await current.ack()
        self._current = await self._take()
        if self._current is None:
            raise StopAsyncIteration
        return self._current

    def __del__(self) -> None:
        if self._current is not None:
            self._left.add(self._current)
