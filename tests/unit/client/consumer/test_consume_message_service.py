"""Order and outcome of consumption, and messages given back by their offset or as a copy."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import pytest

from rocketbroker.client.consumer import consume_message_service
from rocketbroker.client.consumer.consume_message_service import (
    ConsumeMessageConcurrentlyService,
    ConsumeMessageOrderlyService,
    ConsumeMessageService,
    SendMessageBack,
)
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_properties import decode_properties
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.consumer_parts import QUEUE, MemoryOffsets, message, process_queue
from tests.support.fakes import FakeClock
from tests.support.scripted_server import ScriptedServer, name_server, route_of


class Stage:
    def __init__(self) -> None:
        self.client: ClientInstance
        self.refused: set[int] = set()
        self.broker = ScriptedServer(
            {
                RequestCode.CONSUMER_SEND_MSG_BACK: lambda _fields, _body: self.answer(36),
                RequestCode.SEND_MESSAGE_V2: lambda _fields, _body: self.answer(310),
            }
        )

    def answer(self, code: int) -> Command:
        return response(ResponseCode.SYSTEM_ERROR, "refused") if code in self.refused else response()

    async def send_back(self, delay_level: int) -> bool:
        given = message(7, b"body", TAGS="a", TRAN_MSG="true")
        given.reconsume_times = 2
        return await SendMessageBack(self.client, "CG", 16).send_back(QUEUE, given, delay_level)


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        stage = Stage()
        await stack.enter_async_context(stage.broker)
        names = await stack.enter_async_context(name_server({"T": route_of({"broker-a": stage.broker.address})}))
        stage.client = await stack.enter_async_context(ClientInstance(names.address))
        yield stage


async def test_the_broker_gets_the_offset_and_the_level(stage: Stage):
    assert await stage.send_back(3)
    (asked,) = stage.broker.of(RequestCode.CONSUMER_SEND_MSG_BACK)
    given = {name: asked.fields[name] for name in ("offset", "group", "delayLevel", "originTopic", "maxReconsumeTimes")}
    assert given == {
        "offset": "700", "group": "CG", "delayLevel": "3", "originTopic": "T", "maxReconsumeTimes": "16",
    }  # fmt: skip


@pytest.mark.parametrize(("level", "delay", "times"), [(0, "5", "3"), (2, "2", "3"), (-1, None, "17")])
async def test_a_copy_goes_to_the_retry_topic_when_the_broker_refuses(
    stage: Stage, level: int, delay: str | None, times: str
):
    stage.refused = {36}
    assert await stage.send_back(level)
    (asked,) = stage.broker.of(RequestCode.SEND_MESSAGE_V2)
    properties = decode_properties(asked.fields["i"].encode())
    assert (asked.body, asked.fields["b"], asked.fields["j"], asked.fields["l"]) == (b"body", "%RETRY%CG", times, "16")
    assert (properties["RETRY_TOPIC"], properties["TAGS"], properties.get("DELAY")) == ("T", "a", delay)
    assert "TRAN_MSG" not in properties
    assert properties["ORIGIN_MESSAGE_ID"]


async def test_a_message_that_nobody_takes_is_logged(stage: Stage, caplog: pytest.LogCaptureFixture):
    stage.refused = {36, 310}
    assert not await stage.send_back(0)
    assert "was not sent back" in caplog.text


class Back(SendMessageBack):
    """Notes what was sent back."""

    def __init__(self) -> None:
        super().__init__(ClientInstance("127.0.0.1:1"), "CG", 16)
        self.taken: list[tuple[int, int]] = []
        self.works = True
        self.answers = asyncio.Event()
        self.answers.set()

    async def send_back(self, queue: MessageQueue, message: MessageExt, delay_level: int) -> bool:
        await self.answers.wait()
        if self.works:
            self.taken.append((message.queue_offset, delay_level))
        return self.works


class Services:
    def __init__(self) -> None:
        self.offsets = MemoryOffsets()
        self.back = Back()
        self.clock = FakeClock()
        self.locked = True

    def concurrently(self, *, broadcast: bool = False) -> ConsumeMessageConcurrentlyService:
        return ConsumeMessageConcurrentlyService("CG", self.offsets, None if broadcast else self.back, self.clock)

    def orderly(self, *, times: int = 5, broadcast: bool = False) -> ConsumeMessageOrderlyService:
        back = None if broadcast else self.back
        return ConsumeMessageOrderlyService(
            "CG", self.offsets, back, self.clock, 0.01, times, lambda _held: self.locked
        )


class Make(Protocol):
    def __call__(self) -> ConsumeMessageService[Any]: ...


@pytest.fixture
def services() -> Services:
    return Services()


def fill(service: ConsumeMessageService[Any], held: ProcessQueue) -> None:
    service.put(held, list(held))


async def take(service: ConsumeMessageService[Any]) -> ReceivedMessage:
    async with asyncio.timeout(5):
        received = await service.take()
    assert received is not None
    return received


async def test_the_offset_follows_the_oldest_message_under_way(
    services: Services,
):
    service, held = services.concurrently(), process_queue([0, 1, 2])
    fill(service, held)
    first, second, third = [await take(service) for _ in range(3)]
    await second.ack()
    assert services.offsets.offsets == {QUEUE: 0}
    await first.ack()
    assert services.offsets.offsets == {QUEUE: 2}
    await third.retry_later(delay_level=2)
    assert services.offsets.offsets == {QUEUE: 3}
    assert services.back.taken == [(2, 2)]


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_message_whose_outcome_cannot_be_settled_comes_again(
    services: Services,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    *,
    orderly: bool,
):
    monkeypatch.setattr(consume_message_service, "_LOCAL_RETRY_S", 0.01)
    service: ConsumeMessageService[Any] = services.orderly() if orderly else services.concurrently()
    held = process_queue([0])
    fill(service, held)
    received = await take(service)
    with monkeypatch.context() as broken:
        broken.setattr(services.back, "send_back", None)
        await received.dead_letter()
    assert "was not settled; it is consumed again" in caplog.text
    again = await take(service)
    assert (again.queue_offset, again.reconsume_times) == (0, 1)
    await again.ack()
    assert services.offsets.offsets == {QUEUE: 1}


@pytest.mark.parametrize("orderly", [True, False])
async def test_a_queue_continues_after_an_error_of_its_offset_store(
    services: Services, monkeypatch: pytest.MonkeyPatch, *, orderly: bool
):
    service: ConsumeMessageService[Any] = services.orderly() if orderly else services.concurrently()
    held = process_queue([0, 1])
    fill(service, held)
    with monkeypatch.context() as broken:
        broken.setattr(services.offsets, "update", None)
        await (await take(service)).ack()
    await (await take(service)).ack()
    assert services.offsets.offsets == {QUEUE: 2}


async def test_messages_of_a_dropped_queue_are_neither_given_out_nor_counted(
    services: Services,
):
    service, held, other = services.concurrently(), process_queue([0, 1]), process_queue([7])
    fill(service, held)
    fill(service, other)
    first = await take(service)
    held.drop()
    assert (await take(service)).queue_offset == 7
    await first.retry_later()
    assert (services.offsets.offsets, services.back.taken) == ({}, [])


async def test_a_message_that_cannot_be_sent_back_is_consumed_again_here(
    services: Services, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(consume_message_service, "_LOCAL_RETRY_S", 0.01)
    service, held = services.concurrently(), process_queue([0])
    fill(service, held)
    services.back.works = False
    await (await take(service)).retry_later()
    again = await take(service)
    assert again.reconsume_times == 1
    await again.ack()
    assert services.offsets.offsets == {QUEUE: 1}
    await service.stop()


async def test_a_broadcast_message_that_fails_is_dropped(services: Services, caplog: pytest.LogCaptureFixture):
    service, held = services.concurrently(broadcast=True), process_queue([0])
    fill(service, held)
    await (await take(service)).retry_later()
    assert services.offsets.offsets == {QUEUE: 1}
    assert "is not consumed again" in caplog.text


async def test_a_message_that_takes_too_long_is_sent_back_at_level_3(
    services: Services,
):
    service, held = services.concurrently(), process_queue([0, 1])
    fill(service, held)
    late = await take(service)
    await service.expire([held], services.clock.monotonic() + 1)
    assert services.back.taken == [(0, 3)]
    assert services.offsets.offsets == {QUEUE: 1}
    await late.retry_later()
    assert services.back.taken == [(0, 3)], "the late result counts no more"


async def test_a_message_that_takes_too_long_ends_as_given_back(
    services: Services,
):
    service, held = services.concurrently(), process_queue([0])
    fill(service, held)
    late = await take(service)
    outcomes: list[Outcome] = []
    late.observers += (outcomes.append,)
    await service.expire([held], services.clock.monotonic() + 1)
    assert (late.outcome, outcomes) == (Outcome.RETRIED, [Outcome.RETRIED])
    with pytest.raises(ClientStateError, match="was already given back for a retry"):
        await late.ack()


async def test_a_message_that_expires_and_cannot_be_sent_back_is_consumed_again_here(
    services: Services, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(consume_message_service, "_LOCAL_RETRY_S", 0.01)
    service, held = services.concurrently(), process_queue([0])
    fill(service, held)
    await take(service)
    services.back.works = False
    await service.expire([held], services.clock.monotonic() + 1)
    again = await take(service)
    assert (again.queue_offset, again.reconsume_times) == (0, 1)
    await again.ack()
    assert services.offsets.offsets == {QUEUE: 1}
    await service.stop()


@pytest.mark.parametrize("kind", ["concurrently", "orderly"])
async def test_messages_show_their_group(services: Services, kind: str):
    make: Make = getattr(services, kind)
    service = make()
    fill(service, process_queue([0]))
    assert (await take(service)).group == "CG"


async def test_a_message_that_is_acknowledged_while_another_one_expires_is_not_sent_back(
    services: Services,
):
    service, held = services.concurrently(), process_queue([0, 1])
    fill(service, held)
    _, second = await take(service), await take(service)
    services.back.answers.clear()
    expiry = asyncio.create_task(service.expire([held], services.clock.monotonic() + 1))
    await asyncio.sleep(0)
    await second.ack()
    services.back.answers.set()
    await expiry
    assert services.back.taken == [(0, 3)]
    assert services.offsets.offsets == {QUEUE: 2}


@pytest.mark.parametrize("expires_first", [True, False])
async def test_a_message_that_fails_and_expires_at_once_is_sent_back_once(services: Services, *, expires_first: bool):
    service, held = services.concurrently(), process_queue([0])
    fill(service, held)
    late = await take(service)
    services.back.answers.clear()
    expire, fail = (
        service.expire([held], services.clock.monotonic() + 1),
        late.retry_later(delay_level=2),
    )
    both = [asyncio.create_task(each) for each in ((expire, fail) if expires_first else (fail, expire))]
    await asyncio.sleep(0)
    services.back.answers.set()
    await asyncio.gather(*both)
    assert services.back.taken == [(0, 3 if expires_first else 2)]
    assert services.offsets.offsets == {QUEUE: 1}


@pytest.mark.parametrize("kind", ["concurrently", "orderly"])
async def test_a_closed_service_lets_all_waiters_go(services: Services, kind: str):
    make: Make = getattr(services, kind)
    service = make()
    fill(service, process_queue([0]))
    await take(service)
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiters = [group.create_task(service.take()) for _ in range(3)]
        await asyncio.sleep(0)
        service.close()
    assert [waiter.result() for waiter in waiters] == [None] * 3


async def test_an_orderly_queue_gives_out_one_message_at_a_time(
    services: Services,
):
    service, held, other = services.orderly(), process_queue([0, 1]), process_queue([7])
    fill(service, held)
    fill(service, other)
    first, seventh = await take(service), await take(service)
    assert (first.queue_offset, seventh.queue_offset) == (0, 7)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await service.take()
    await first.ack()
    assert (await take(service)).queue_offset == 1
    assert services.offsets.offsets == {QUEUE: 1}


async def test_a_failed_message_suspends_its_queue_and_comes_again(
    services: Services,
):
    service, held = services.orderly(times=1), process_queue([0, 1])
    fill(service, held)
    await (await take(service)).retry_later()
    again = await take(service)
    assert (again.queue_offset, again.reconsume_times) == (0, 1)
    await again.retry_later()
    assert services.back.taken == [(0, -1)], "after its last retry it is a dead letter"
    assert (await take(service)).queue_offset == 1
    await service.stop()


async def test_a_dead_letter_that_cannot_be_made_suspends_the_queue(
    services: Services,
):
    service, held = services.orderly(), process_queue([0])
    fill(service, held)
    services.back.works = False
    await (await take(service)).dead_letter()
    again = await take(service)
    services.back.works = True
    await again.dead_letter()
    assert services.back.taken == [(0, -1)]
    await service.stop()


async def test_an_orderly_broadcast_goes_on_after_its_retries(
    services: Services,
):
    service, held = services.orderly(times=0, broadcast=True), process_queue([0, 1])
    fill(service, held)
    await (await take(service)).retry_later()
    assert (await take(service)).queue_offset == 1


async def test_a_queue_without_its_lock_waits(services: Services):
    service, held = services.orderly(), process_queue([0])
    services.locked = False
    fill(service, held)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await service.take()
    services.locked = True
    assert (await take(service)).queue_offset == 0
    await service.stop()


async def test_an_orderly_queue_that_is_given_up_gives_out_no_more(
    services: Services, caplog: pytest.LogCaptureFixture
):
    service, held = services.orderly(), process_queue([0, 1])
    fill(service, held)
    first = await take(service)
    await service.expire([held], services.clock.monotonic() + 1)
    assert "exceeds consumeTimeout" in caplog.text
    held.dropped = True
    await first.ack()
    assert services.offsets.offsets == {QUEUE: 1}, "its last result counts"
    service.close()
    assert await service.take() is None


async def test_all_waiters_are_woken_for_what_the_first_leaves(
    services: Services,
):
    service, held = services.concurrently(), process_queue([0, 1, 2])
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        waiters = [group.create_task(service.take()) for _ in range(3)]
        await asyncio.sleep(0)
        fill(service, held)
    assert sorted(each.queue_offset for waiter in waiters if (each := waiter.result())) == [0, 1, 2]


async def test_a_waiter_that_is_cancelled_leaves_its_message_to_another(
    services: Services,
):
    service, held = services.concurrently(), process_queue([0, 1])
    waiters = [asyncio.create_task(service.take()) for _ in range(3)]
    await asyncio.sleep(0)
    fill(service, held)
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(waiters[1].cancel)  # when it is woken and has not run yet
    done, _ = await asyncio.wait([waiters[0], waiters[2]], timeout=5)
    assert sorted(each.queue_offset for task in done if (each := task.result())) == [0, 1]
    assert waiters[1].cancelled()


async def test_a_task_that_is_cancelled_while_the_loop_has_its_turn_leaves_its_message_to_another(
    services: Services,
):
    service, held = services.concurrently(), process_queue([0, 1])
    waiters = [asyncio.create_task(service.take()) for _ in range(3)]
    await asyncio.sleep(0)
    fill(service, held)
    async with asyncio.timeout(5):
        await waiters[0]
        service._taken_in_a_row = 64
        await asyncio.sleep(0)
        waiters[1].cancel()
        last = await waiters[2]
    assert waiters[1].cancelled()
    assert last is not None
    assert last.queue_offset == 1


async def test_the_loop_gets_a_turn_between_messages_that_wait_for_nothing(
    services: Services,
):
    service, held = services.concurrently(), process_queue(range(200))
    fill(service, held)
    received: list[ReceivedMessage] = []
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(lambda: turns.append(len(received)))
    while len(received) < 200:
        received.append(await take(service))
    assert turns == [64]
