"""Groups whose members come and go for minutes, with handlers that fail, hang and block, and brokers that restart."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rocketbroker.app.launch.dev_server import DevServer
from rocketbroker.client import AdminClient, ConsumeFromWhere, Message, Producer, PushConsumer, ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.errors import RocketBrokerError
from tests.support.waiting import until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]

SECONDS = 120
CHANGE_S = 2.0
MOST_IDLE_S = 5.0
QUEUES = 8


class Chaos:
    """One broker, a producer that counts what was acknowledged, and members that come and go."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.server = DevServer(0, 0, folder)
        self.random = random.Random(7)
        self.sent: dict[int, int] = defaultdict(int)
        self.running = True

    async def start(self) -> None:
        await self.server.start()
        await self.resize(QUEUES)

    async def resize(self, queues: int) -> None:
        async with AdminClient(self.server.namesrv_addr) as admin:
            await admin.create_and_update_topic_config(self.server.broker_addr, TopicConfig("Chaos", queues, queues))

    async def restart(self) -> None:
        ports = [int(address.rpartition(":")[2]) for address in (self.server.namesrv_addr, self.server.broker_addr)]
        await self.server.stop()
        self.server = DevServer(ports[0], ports[1], self._folder)
        await self.server.start()

    async def produce(self, queue_id: int) -> None:
        """Send numbers to one queue, each until it is acknowledged."""
        queue = MessageQueue("Chaos", "broker-a", queue_id)
        async with Producer("PG", self.server.namesrv_addr) as producer:
            while self.running:
                try:
                    await producer.send(Message("Chaos", b"%d" % self.sent[queue_id]), queue)
                    self.sent[queue_id] += 1
                except RocketBrokerError:
                    await asyncio.sleep(0.2)
                await asyncio.sleep(0.02)

    async def change_members(self, make: Callable[[], PushConsumer]) -> None:
        """Keep one to four members."""
        members: list[PushConsumer] = []
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            if len(members) < 2 or (len(members) < 4 and self.random.random() < 0.5):
                member = make()
                await member.subscribe("Chaos")
                await member.start()
                members.append(member)
            else:
                await members.pop(self.random.randrange(len(members))).close()
            await asyncio.sleep(CHANGE_S)
        self.running = False
        self.members = members

    async def repeat(self, action: Callable[[], Awaitable[None]], period_s: float) -> None:
        while self.running:
            await asyncio.sleep(period_s)
            await action()


@pytest.fixture
async def chaos(tmp_path: Path) -> AsyncIterator[Chaos]:
    chaos = Chaos(tmp_path / "store")
    await chaos.start()
    yield chaos
    await chaos.server.stop()


async def finish(chaos: Chaos, missing: Callable[[], object]) -> None:
    """Wait until the members that are left have the rest."""
    try:
        await until(lambda: not missing(), 90)
    except TimeoutError:
        queues = [member.queues for member in chaos.members]
        raise AssertionError(f"missing {missing()} of {dict(chaos.sent)}; members have {queues}") from None
    finally:
        for member in chaos.members:
            await member.close()


async def test_each_message_arrives_and_no_queue_is_idle(chaos: Chaos):
    given: set[int] = set()
    seen: set[int] = set()
    delays: list[float] = []

    async def handle(message: ReceivedMessage) -> None:
        chance = chaos.random.random()
        number = int(message.body)
        if number not in given:
            given.add(number)
            delays.append(time.time() - message.store_timestamp / 1000)
        if chance < 0.01:
            await message.retry_later(delay_level=1)
            return
        if chance < 0.02:
            await asyncio.sleep(10)  # beyond the timeout
        if chance < 0.03:
            time.sleep(0.1)  # noqa: ASYNC251 - blocks the loop
        seen.add(number)

    sent: list[int] = []

    async def produce() -> None:
        async with Producer("PG", chaos.server.namesrv_addr) as producer:
            while chaos.running:
                await producer.send(Message("Chaos", b"%d" % len(sent)))
                sent.append(len(sent))
                await asyncio.sleep(0.01)

    async def grow() -> None:
        await asyncio.sleep(SECONDS / 3)
        await chaos.resize(QUEUES + 3)

    def member() -> PushConsumer:
        return PushConsumer(
            "CG",
            chaos.server.namesrv_addr,
            handler=handle,
            consume_timeout_s=2.0,
            stop_timeout_s=1.0,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )

    async with asyncio.TaskGroup() as group:
        group.create_task(produce())
        group.create_task(grow())
        group.create_task(chaos.change_members(member))
    # A message that timed out comes again after 10 s.
    await finish(chaos, lambda: [name for name in sent if name not in seen])
    assert max(delays) < MOST_IDLE_S


async def test_the_order_is_kept_over_restarts_of_the_broker(chaos: Chaos):
    seen: dict[int, int] = defaultdict(int)
    running: set[int] = set()

    async def handle(message: ReceivedMessage) -> None:
        queue_id, number = message.queue.queue_id, int(message.body)
        assert queue_id not in running, "one message of a queue at a time"
        assert number <= seen[queue_id], f"queue {queue_id}: {number} after {seen[queue_id] - 1}"
        running.add(queue_id)
        try:
            await asyncio.sleep(chaos.random.random() * 0.01)
            if chaos.random.random() < 0.01:
                raise ValueError(number)
            seen[queue_id] = max(seen[queue_id], number + 1)
        finally:
            running.discard(queue_id)

    failures: list[str] = []

    async def checked(message: ReceivedMessage) -> None:
        try:
            await handle(message)
        except AssertionError as error:
            failures.append(str(error))

    def member() -> PushConsumer:
        return PushConsumer(
            "CG",
            chaos.server.namesrv_addr,
            handler=checked,
            orderly=True,
            suspend_current_queue_s=0.1,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        )

    async with asyncio.TaskGroup() as group:
        for queue_id in range(QUEUES):
            group.create_task(chaos.produce(queue_id))
        group.create_task(chaos.repeat(chaos.restart, 20))
        group.create_task(chaos.change_members(member))
    await finish(chaos, lambda: [queue_id for queue_id in range(QUEUES) if seen[queue_id] < chaos.sent[queue_id]])
    assert failures == []
