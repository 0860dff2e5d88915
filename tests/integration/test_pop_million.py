"""A million messages in flight: what they cost in memory, and that the work on them never holds the loop."""

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.dev_server import broker_settings
from rocketbroker.app.server_process import spare_the_collector
from rocketbroker.codec.message.message_batch import encode_batch
from rocketbroker.codec.message.pop_info import PoppedQueue, parse_start_offset_info
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.headers.admin import GetConsumeStatsRequestHeader
from rocketbroker.codec.remoting.headers.message import GetMaxOffsetRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.headers.pop import PopMessageRequestHeader, PopMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, from_ext_fields, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.hosts import LOOPBACK
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.running import running

pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]

TOPIC, GROUP, QUEUES = "Million", "CG_Million", 8
SETTINGS = {"autoCreateTopicEnable": "true", "defaultTopicQueueNums": str(QUEUES)}
MESSAGES = 1_000_000
IN_A_SEND = 1_000
# 125,000 check points, which popCkMaxBufferSize allows by default.
IN_A_POP = 8
POPS = MESSAGES // IN_A_POP
# Of these the time is measured, with their acknowledgements, so that the invisible time is longer than it takes to pop
# all.
MEASURED_POPS = 2_000
CONCURRENT = 32
ACKNOWLEDGED_POPS = 500
# The docs give 550 bytes for a check point; the rest is for buffers and indexes.
MOST_BYTES = POPS * 650 + (96 << 20)
# CPU time of one turn of the loop, in times that a client takes to encode a batch of a send: 50 ms where this is 1 ms.
MOST_HELD = 50


@pytest.fixture(autouse=True)
def collects_as_the_server_does() -> Iterator[None]:
    """A process of the broker does not look at what was there when it had started."""
    before = gc.get_threshold()
    spare_the_collector()
    yield
    gc.set_threshold(*before)
    gc.unfreeze()


class LoopWatch:
    """The longest turn of the loop, in CPU time of its thread: what others do on a busy machine does not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        last = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.longest_s, last = max(self.longest_s, now - last), now


def batch() -> bytes:
    """Return the body of a send."""
    return encode_batch([(0, b"%d" % each, b"") for each in range(IN_A_SEND)])


def most_held_s() -> float:
    """Return the CPU time that one turn of the loop may take on this machine."""

    def once() -> float:
        began = time.thread_time()
        batch()
        return time.thread_time() - began

    return MOST_HELD * min(once() for _ in range(50))


def check_turns(*watches: LoopWatch) -> None:
    """Check the longest turns of two phases."""
    most_s, longest = most_held_s(), [each.longest_s for each in watches]
    print(f"longest turns {longest}, at most {most_s} s")
    assert max(longest) < most_s


def anonymous_bytes() -> int:
    """Return the memory of this process that is no file's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) * 1024


class Client:
    """Requests to one broker, many at a time."""

    def __init__(self, address: str) -> None:
        self.remoting = RemotingClient()
        self._address = address

    async def ask(self, code: RequestCode, header: CommandCustomHeader | None, body: bytes = b"") -> Command:
        """Return the answer to a request, which succeeds."""
        answer = await self.remoting.invoke(self._address, request(code, header, body), 60)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return answer

    async def each(self, work: Callable[[int], Awaitable[None]], number: int) -> None:
        """Do some work for each number below ``number``."""
        numbers = iter(range(number))

        async def do() -> None:
            for each in numbers:
                await work(each)

        async with asyncio.TaskGroup() as tasks:
            for _ in range(CONCURRENT):
                tasks.create_task(do())

    async def send(self, number: int) -> None:
        """Send a batch to the queue whose turn it is."""
        where = TOPIC, "TBW102", QUEUES, number % QUEUES
        header = SendMessageRequestHeaderV2("PG", *where, 0, time.time_ns() // 10**6, 0, "", batch=True)
        await self.ask(RequestCode.SEND_BATCH_MESSAGE, header, batch())

    async def pop(self, number: int, group: str, invisible_ms: int) -> BatchAck:
        """Pop messages of the queue whose turn it is; return what acknowledges them."""
        queue_id = number % QUEUES
        header = PopMessageRequestHeader(group, TOPIC, queue_id, IN_A_POP, invisible_ms, 0, 0, 0)
        answer = await self.ask(RequestCode.POP_MESSAGE, header)
        fields = from_ext_fields(answer.header, PopMessageResponseHeader)
        start = parse_start_offset_info(fields.start_offset_info or "")[PoppedQueue("0", queue_id)]
        where = group, TOPIC, "0", start, queue_id
        return BatchAck(*where, fields.revive_qid, fields.pop_time, fields.invisible_time, b"\xff")

    async def acknowledge(self, ack: BatchAck) -> None:
        """Acknowledge all messages of a pop."""
        body = BatchAckMessageRequestBody("broker-a", [ack]).encode()
        await self.ask(RequestCode.BATCH_ACK_MESSAGE, None, body)

    async def in_flight(self) -> int:
        """Return the number of messages in flight."""
        answer = await self.ask(RequestCode.GET_CONSUME_STATS, GetConsumeStatsRequestHeader(GROUP, TOPIC))
        return sum(each.pop_in_flight or 0 for each in ConsumeStats.decode(answer.body).offset_table.values())

    async def returned(self) -> int:
        """Return the number of messages that came to the retry topic."""
        header = GetMaxOffsetRequestHeader(f"%RETRY%{GROUP}_{TOPIC}", 0)
        answer = await self.ask(RequestCode.GET_MAX_OFFSET, header)
        fields: dict[str, str] = answer.header or {}
        return int(fields["offset"])


async def all_in_flight(client: Client) -> list[BatchAck]:
    """Bring a million messages in flight, within their memory; return what acknowledges some of them."""
    acks: list[BatchAck] = []

    async def measured(number: int) -> None:
        await client.acknowledge(await client.pop(number, "CG_Measured", 3_600_000))

    async def pop(number: int) -> None:
        ack = await client.pop(number, GROUP, invisible_ms)
        if number < ACKNOWLEDGED_POPS:
            acks.append(ack)

    await client.each(client.send, MESSAGES // IN_A_SEND)
    began = time.monotonic()
    await client.each(measured, MEASURED_POPS)
    invisible_ms = int((time.monotonic() - began) * 1000 * POPS / MEASURED_POPS)
    before = anonymous_bytes()
    await client.each(pop, POPS)
    assert await client.in_flight() == MESSAGES
    grown = anonymous_bytes() - before
    print(f"{grown >> 20} MiB for {POPS:,} check points, invisible for {invisible_ms / 1000:.0f} s")
    assert grown < MOST_BYTES
    return acks


@pytest.mark.proves("Consumers", "a million messages in flight by POP cost bounded memory and never hold the loop")
async def test_a_million_messages_in_flight_hold_nobody(tmp_path: Path) -> None:
    settings = broker_settings(0, tmp_path, "", properties=SETTINGS)
    async with AsyncExitStack() as stack:
        broker = await stack.enter_async_context(running(BrokerController.bind(settings)))
        client = Client(f"{LOOPBACK}:{broker.port}")
        stack.push_async_callback(client.remoting.stop)
        acks = await all_in_flight(client)
        async with LoopWatch() as acknowledging:
            for ack in acks:
                await client.acknowledge(ack)
            left = MESSAGES - ACKNOWLEDGED_POPS * IN_A_POP
            assert await client.in_flight() == left
        async with LoopWatch() as returning, asyncio.timeout(4 * acks[0].invisible_time / 1000):
            while await client.in_flight():  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(0.5)
        assert await client.returned() == left
        check_turns(acknowledging, returning)


async def test_a_million_messages_in_flight_are_found_and_forgotten_in_steps(tmp_path: Path) -> None:
    """At a start, and when a broker is no master any more."""
    settings = broker_settings(0, tmp_path, "", properties=SETTINGS)
    async with running(BrokerController.bind(settings)) as broker:
        client = Client(f"{LOOPBACK}:{broker.port}")
        try:
            await all_in_flight(client)
        finally:
            await client.remoting.stop()
        async with LoopWatch() as stopping:
            await broker.stop()
    async with LoopWatch() as starting, running(BrokerController.bind(settings)) as again:
        assert again._check_points.count == POPS
    check_turns(stopping, starting)
