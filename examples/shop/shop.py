"""A shop: takes orders, charges a card for each, and reminds customers whose card was refused.

``NAMESRV_ADDR=127.0.0.1:9876 python shop.py`` takes one order per line of standard input, such as ``order-7 1200``.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rocketbroker.client import ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage

REMIND_AFTER_S = 3600

Charge = Callable[[str, int], Awaitable[None]]
Remind = Callable[[str], Awaitable[None]]


class CardRefusedError(Exception):
    """The bank refuses the card: another try would change nothing."""


@dataclass(frozen=True)
class Settings:
    """Name servers and topic of the shop."""

    namesrv_addr: str = ""  # by default from the environment variable NAMESRV_ADDR
    orders: str = "Orders"
    reminders: str = "Reminders"
    billing: str = "billing"
    mail: str = "mail"


class Shop:
    """The service: a producer for orders, a consumer that bills them, one that sends reminders.

    Args:
        charge: charges the card of an order; an order that was charged before is charged again if the service is
            killed before its message is acknowledged, so the bank must know orders by their id.
        remind: writes to the customer of an order.
        settings: topics and groups.
    """

    def __init__(self, charge: Charge, remind: Remind, settings: Settings) -> None:
        self._charge = charge
        self._remind = remind
        self._settings = settings
        self._producer = Producer("shop", settings.namesrv_addr)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self._stack.__aenter__()
        await self._stack.enter_async_context(self._producer)
        await self._consume(self._settings.billing, self._settings.orders, self._bill)
        await self._consume(self._settings.mail, self._settings.reminders, self._send_reminder)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.__aexit__(kind, error, trace)

    async def _consume(self, group: str, topic: str, handler: Callable[[ReceivedMessage], Awaitable[None]]) -> None:
        consumer = PushConsumer(
            group,
            self._settings.namesrv_addr,
            handler=handler,
            max_reconsume_times=3,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )
        await self._stack.enter_async_context(consumer)
        await consumer.subscribe(topic)

    async def place_order(self, order: str, cents: int) -> None:
        """Accept an order: when this returns, the broker has it."""
        body = json.dumps({"order": order, "cents": cents}).encode()
        await self._producer.send(Message(self._settings.orders, body, keys=order))

    async def _bill(self, message: ReceivedMessage) -> None:
        """Charge an order; any error but a refused card leaves it to RocketMQ's retries."""
        order = json.loads(message.body)
        try:
            await self._charge(order["order"], order["cents"])
        except CardRefusedError:
            reminder = Message(self._settings.reminders, order["order"].encode(), delay_time_ms=REMIND_AFTER_S * 1000)
            await self._producer.send(reminder)

    async def _send_reminder(self, message: ReceivedMessage) -> None:
        await self._remind(message.body.decode())


async def main() -> None:
    """Take orders from standard input, with a bank that takes every card."""

    async def charge(order: str, cents: int) -> None:
        print(f"{order}: charged {cents}")

    async def remind(order: str) -> None:
        print(f"{order}: please pay")

    async with Shop(charge, remind, Settings()) as shop:
        while line := await asyncio.to_thread(sys.stdin.readline):
            order, cents = line.split()
            await shop.place_order(order, int(cents))


if __name__ == "__main__":
    asyncio.run(main())
