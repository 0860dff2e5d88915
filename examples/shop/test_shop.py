"""Tests of the shop against a real broker, which all of them share: each has topics and groups of its own."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.client import Message, Producer
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from shop import REMIND_AFTER_S, CardRefusedError, Settings, Shop


class Bank:
    """Bank that charges every card, unless it has errors to raise first."""

    def __init__(self) -> None:
        self.charged: list[tuple[str, int]] = []
        self.errors: list[Exception] = []

    async def charge(self, order: str, cents: int) -> None:
        if self.errors:
            raise self.errors.pop()
        self.charged.append((order, cents))


class Post:
    """Post office that keeps the reminders."""

    def __init__(self) -> None:
        self.reminded: list[str] = []

    async def remind(self, order: str) -> None:
        self.reminded.append(order)


@pytest.fixture
def settings(rocketmq: RocketMQServer, rocketmq_topic: str) -> Settings:
    return Settings(
        rocketmq.namesrv_addr,
        orders=rocketmq_topic,
        reminders=f"{rocketmq_topic}_reminders",
        billing=f"{rocketmq_topic}_billing",
        mail=f"{rocketmq_topic}_mail",
    )


@pytest.fixture
def bank() -> Bank:
    return Bank()


@pytest.fixture
def post() -> Post:
    return Post()


@pytest.fixture
async def shop(settings: Settings, bank: Bank, post: Post) -> AsyncIterator[Shop]:
    async with Shop(bank.charge, post.remind, settings) as shop:
        yield shop


async def test_an_order_is_charged_once(rocketmq: RocketMQServer, bank: Bank, post: Post, settings: Settings) -> None:
    async with Shop(bank.charge, post.remind, settings) as shop:
        await shop.place_order("order-7", 1200)
        await rocketmq.eventually(lambda: bank.charged == [("order-7", 1200)])

    assert bank.charged == [("order-7", 1200)]
    rocketmq.assert_lag(settings.billing, settings.orders, 0)  # the consumer commits when it is closed
    rocketmq.assert_messages(settings.reminders, [])


async def test_an_order_is_charged_when_the_bank_is_back(rocketmq: RocketMQServer, shop: Shop, bank: Bank) -> None:
    bank.errors = [ConnectionError("the bank is closed"), ConnectionError("the bank is closed")]
    await shop.place_order("order-7", 1200)

    def is_charged() -> bool:
        rocketmq.clock.advance(30)  # retries come after 10 and 30 s
        return bank.charged == [("order-7", 1200)]

    await rocketmq.eventually(is_charged)


async def test_an_order_that_cannot_be_billed_is_a_dead_letter(
    rocketmq: RocketMQServer, shop: Shop, bank: Bank, settings: Settings
) -> None:
    async with Producer("another_shop", rocketmq.namesrv_addr) as producer:
        await producer.send(Message(settings.orders, b"not JSON"))

    def is_dead() -> None:
        rocketmq.clock.advance(60)
        rocketmq.assert_dead_letters(settings.billing, [b"not JSON"])

    await rocketmq.eventually(is_dead)
    assert bank.charged == []


async def test_a_refused_card_brings_a_reminder_after_an_hour(
    rocketmq: RocketMQServer, bank: Bank, post: Post, settings: Settings
) -> None:
    bank.errors = [CardRefusedError()]
    async with Shop(bank.charge, post.remind, settings) as shop:
        await shop.place_order("order-7", 1200)
        await rocketmq.eventually(lambda: bank.errors == [])
    rocketmq.clock.advance(REMIND_AFTER_S - 60)
    rocketmq.assert_messages(settings.reminders, [])

    def is_reminded() -> bool:
        rocketmq.clock.advance(60)
        return post.reminded == ["order-7"]

    async with Shop(bank.charge, post.remind, settings):
        await rocketmq.eventually(is_reminded)
    assert bank.charged == []


async def test_an_order_is_taken_while_the_broker_is_busy(rocketmq: RocketMQServer, shop: Shop, bank: Bank) -> None:
    rocketmq.faults.answer(ResponseCode.SYSTEM_BUSY, times=2)

    await shop.place_order("order-7", 1200)

    await rocketmq.eventually(lambda: bank.charged == [("order-7", 1200)])


async def test_orders_are_charged_after_a_restart_of_the_broker(
    rocketmq: RocketMQServer, settings: Settings, bank: Bank, post: Post
) -> None:
    async with Producer("another_shop", rocketmq.namesrv_addr) as producer:
        await producer.send(Message(settings.orders, b'{"order": "order-7", "cents": 1200}'))
    rocketmq.restart_broker()

    async with Shop(bank.charge, post.remind, settings):
        await rocketmq.eventually(lambda: bank.charged == [("order-7", 1200)])
