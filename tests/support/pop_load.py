"""Clients that pop messages while their server is killed: they acknowledge late, twice, wrongly, or not at all."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from itertools import count
from typing import Any, Protocol

from rocketbroker.codec.message.pop_info import decode_extra_info
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader
from rocketbroker.codec.remoting.headers.pop import (
    AckMessageRequestHeader,
    ChangeInvisibleTimeRequestHeader,
    ChangeInvisibleTimeResponseHeader,
    PopMessageRequestHeader,
    PopMessageResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, CommandCustomHeader, from_ext_fields, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingError
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.pop_broker import handed, stored_in
from tests.support.pop_journal import Delivery, Journal, Place
from tests.support.raw_client import raw_frame, raw_header

TOPIC, QUEUES = "Popped", 2
GROUP, ORDERED = "CG_Free", "CG_Ordered"
INVISIBLE_MS = (200, 500, 900)
POLL_MS = 300
# Messages that the slower group has still to pop.
MOST_BEHIND = 200
# An answer that takes longer is lost with the broker.
ANSWER_S = 5.0
PAUSE_S = 0.05
WASTE_S = 0.3


def now_ms() -> int:
    """Return the time by the wall clock."""
    return time.time_ns() // 1_000_000


class PopClient(Protocol):
    """Requests to a server; an answer that was lost says nothing.

    Attributes:
        counts: takes what happened, by name.
        senders: how many producers may send at a time, so that numbers are in order in each queue.
    """

    counts: Counter[str]
    senders: int

    async def send(self, number: int, sender: int) -> bool:
        """Send a message of one of the producers; return true if it is stored."""

    async def pop(
        self, group: str, most: int, invisible_ms: int, poll_ms: int, attempt: str = ""
    ) -> list[Delivery] | None:
        """Return what a pop delivered, in order with an attempt; ``None`` if its answer was lost."""

    async def ack(self, group: str, handles: Sequence[str]) -> bool:
        """Acknowledge messages of one pop by one request; return true if it was answered that they are."""

    async def change(self, group: str, handle: str, invisible_ms: int) -> str | None:
        """Let a message come again at another time; return its new handle, ``None`` if that is not certain."""

    async def waste(self, group: str, invisible_ms: int) -> None:
        """Pop so that nobody gets the messages."""

    async def stop(self) -> None:
        """Close all connections."""


class PopLoad:
    """Producers and consumers of one topic, which note what they see.

    Args:
        client: sends their requests.
        seed: decides what the clients do.

    Attributes:
        client: likewise; it may be replaced while nobody works.
        free: notes of the group that pops without order.
        ordered: notes of the group that pops in order.
        counts: what happened, by name.
    """

    def __init__(self, client: PopClient, seed: int) -> None:
        self.chance = random.Random(seed)
        self.free, self.ordered = Journal(), Journal()
        self.client = client
        self.counts = client.counts
        self._numbers = count()
        self._running = True
        self._late: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let all clients work until the context ends, then let them finish."""
        self._running = True
        async with asyncio.TaskGroup() as tasks:
            for work in self._work():
                tasks.create_task(work)
            try:
                yield
            finally:
                self._running = False
        await asyncio.gather(*self._late)

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [
            *(self._repeat(partial(self._send, sender)) for sender in range(self.client.senders)),
            *(self._repeat(self._consume) for _ in range(3)),
            *(self._consume_in_order() for _ in range(3)),
            self._repeat(self._waste),
        ]

    async def drain(self, limit_s: float) -> None:
        """Consume what is left, until the last message could have come again, or for ``limit_s`` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self.free.missing() or self.ordered.missing() or now_ms() < self._end_ms():
                    await self._take_rest(GROUP, self.free)
                    await self._take_rest(ORDERED, self.ordered)

    def _end_ms(self) -> int:
        # What is due returns within a second.
        return max(self.free.last_visible_ms, self.ordered.last_visible_ms) + 1_000

    async def _repeat(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while self._running:
            await action()

    async def _send(self, sender: int) -> None:
        if len(self.ordered.sent) - len(self.ordered.by_number) > MOST_BEHIND:
            await asyncio.sleep(PAUSE_S)
            return
        number = next(self._numbers)
        self.free.sent[number] = self.ordered.sent[number] = False
        if await self.client.send(number, sender):
            self.free.sent[number] = self.ordered.sent[number] = True
            self.counts["sent"] += 1
        await asyncio.sleep(self.chance.uniform(0.005, 0.02))

    async def _pop(self, group: str, journal: Journal, attempt: str = "") -> list[Delivery] | None:
        """Return what a pop delivered, ``None`` if its answer was lost."""
        most, invisible_ms = self.chance.choice([1, 4, 32]), self.chance.choice(INVISIBLE_MS)
        found = await self.client.pop(group, most, invisible_ms, POLL_MS, attempt)
        self._note(journal, found or ())
        return found

    def _note(self, journal: Journal, found: Sequence[Delivery]) -> None:
        for each in found:
            self.counts["again" if each.number in journal.by_number else "first"] += 1
        journal.delivered(found)

    async def _ack(self, group: str, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            each.acknowledging(now_ms())
        if await self.client.ack(group, [each.handle for each in deliveries]):
            for each in deliveries:
                each.acknowledged(now_ms())

    async def _change(self, group: str, delivery: Delivery, invisible_ms: int) -> bool:
        """Let a message come again at another time; return false if that is not certain."""
        before_ms = delivery.visible_ms
        delivery.changing(now_ms() + invisible_ms)
        handle = await self.client.change(group, delivery.handle, invisible_ms)
        if handle is None:
            return False
        info, delivery.handle = decode_extra_info(handle), handle
        delivery.changed(before_ms, info.pop_time + info.invisible_time, now_ms())
        return True

    # -- consumers

    async def _consume(self) -> None:
        """Pop, and treat the messages as consumers do and as they should not."""
        found = await self._pop(GROUP, self.free)
        if found and self.chance.random() < 0.3:
            await self._ack(GROUP, found)
            self.counts["acked in a batch"] += len(found)
            return
        for each in found or ():
            await self._treat(GROUP, each)

    async def _treat(self, group: str, delivery: Delivery) -> None:
        kind = self.chance.choices(
            ["acked", "acked twice", "acked late", "foreign", "dropped", "changed"], [60, 8, 5, 4, 8, 15]
        )[0]
        self.counts[f"{group} {kind}"] += 1
        match kind:
            case "acked":
                await self._ack(group, [delivery])
            case "acked twice":
                await self._ack(group, [delivery])
                await self._ack(group, [delivery])
            case "acked late":
                self._late.add(asyncio.create_task(self._ack_late(group, delivery)))
            case "foreign":
                other = decode_extra_info(delivery.handle)._replace(broker_name="broker-b").encode()
                await self.client.ack(group, [other])
            case "changed":
                await self._change_and_ack(group, delivery)

    async def _ack_late(self, group: str, delivery: Delivery) -> None:
        await asyncio.sleep(max(delivery.visible_ms - now_ms() + self.chance.randrange(-20, 200), 0) / 1000)
        await self._ack(group, [delivery])

    async def _change_and_ack(self, group: str, delivery: Delivery) -> None:
        old = delivery.handle
        if not await self._change(group, delivery, self.chance.choice([0, 300, 900])):
            return
        if not decode_extra_info(old).is_order:
            await self.client.ack(group, [old])
        if self.chance.random() < 0.5:
            await self._ack(group, [delivery])

    async def _consume_in_order(self) -> None:
        """Pop in order; ask again with the same attempt id while the answer is lost."""
        attempt = ""
        while self._running:
            attempt = attempt or f"{self.chance.random()}"
            found = await self._pop(ORDERED, self.ordered, attempt)
            if found is None:
                continue
            attempt = ""
            for each in found:
                await self._treat(ORDERED, each)

    async def _waste(self) -> None:
        await self.client.waste(GROUP, self.chance.choice(INVISIBLE_MS))
        self.counts["wasted"] += 1

    async def _take_rest(self, group: str, journal: Journal) -> None:
        attempt = f"{self.chance.random()}" if group == ORDERED else ""
        found = await self.client.pop(group, 32, self.chance.choice(INVISIBLE_MS), 50, attempt)
        if found:
            self._note(journal, found)
            await self._ack(group, found)


class RemotingPops:
    """Requests to a broker, over TCP.

    Args:
        address: the broker.
    """

    senders = QUEUES

    def __init__(self, address: str) -> None:
        self.counts = Counter[str]()
        self._address = address
        self._client = RemotingClient()

    async def stop(self) -> None:
        """Close the connection."""
        await self._client.stop()

    async def _ask(self, code: RequestCode, header: CommandCustomHeader | None, body: bytes = b"") -> Command | None:
        """Return the answer to a request, ``None`` if it was lost."""
        try:
            return await self._client.invoke(self._address, request(code, header, body), ANSWER_S)
        except RemotingError:
            self.counts["lost"] += 1
            await asyncio.sleep(PAUSE_S)
            return None

    async def send(self, number: int, sender: int) -> bool:
        """Send a message to the queue of a producer."""
        header = SendMessageRequestHeader("PG", TOPIC, "TBW102", QUEUES, sender, 0, now_ms(), 0, "")
        return _succeeded(await self._ask(RequestCode.SEND_MESSAGE, header, b"%d" % number))

    async def pop(
        self, group: str, most: int, invisible_ms: int, poll_ms: int, attempt: str = ""
    ) -> list[Delivery] | None:
        """Pop from all queues."""
        times, is_order = (invisible_ms, poll_ms, now_ms()), bool(attempt)
        header = PopMessageRequestHeader(group, TOPIC, -1, most, *times, 0, order=is_order, attempt_id=attempt or None)
        answer = await self._ask(RequestCode.POP_MESSAGE, header)
        if answer is None:
            return None
        if answer.code != ResponseCode.SUCCESS:
            self.counts[ResponseCode(answer.code).name] += 1
            return []
        answer.header = from_ext_fields(answer.header, PopMessageResponseHeader)
        return [delivery_of(int(each.body), each.handle) for each in handed(answer, header)]

    async def ack(self, group: str, handles: Sequence[str]) -> bool:
        """Acknowledge one message, or several."""
        if len(handles) == 1:
            info = decode_extra_info(handles[0])
            where = stored_in(group, info, TOPIC), info.queue_id
            header = AckMessageRequestHeader(group, *where, handles[0], info.queue_offset)
            return _succeeded(await self._ask(RequestCode.ACK_MESSAGE, header))
        acks: dict[tuple[str, int], BatchAck] = {}
        for info in map(decode_extra_info, handles):
            ack = acks.get((info.retry, info.queue_id))
            if ack is None:
                start, queue = info.ck_queue_offset, (info.queue_id, info.revive_qid)
                times = info.pop_time, info.invisible_time
                ack = acks[info.retry, info.queue_id] = BatchAck(group, TOPIC, info.retry, start, *queue, *times, b"")
            bits = int.from_bytes(ack.bit_set, "little") | 1 << info.queue_offset - ack.start_offset
            ack.bit_set = bits.to_bytes(-(-bits.bit_length() // 8), "little")
        body = BatchAckMessageRequestBody("broker-a", list(acks.values())).encode()
        return _succeeded(await self._ask(RequestCode.BATCH_ACK_MESSAGE, None, body))

    async def change(self, group: str, handle: str, invisible_ms: int) -> str | None:
        """Change the time of a message."""
        info = decode_extra_info(handle)
        where = stored_in(group, info, TOPIC), info.queue_id
        header = ChangeInvisibleTimeRequestHeader(group, *where, handle, info.queue_offset, invisible_ms)
        answer = await self._ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return None
        fields = from_ext_fields(answer.header, ChangeInvisibleTimeResponseHeader)
        return info._replace(
            ck_queue_offset=info.ck_queue_offset if info.is_order else info.queue_offset,
            pop_time=fields.pop_time,
            invisible_time=fields.invisible_time,
        ).encode()

    async def waste(self, group: str, invisible_ms: int) -> None:
        """Pop over a connection that reads nothing."""
        host, _, port = self._address.rpartition(":")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            fields = {
                "consumerGroup": group, "topic": TOPIC, "queueId": -1, "maxMsgNums": 8, "pollTime": POLL_MS,
                "invisibleTime": invisible_ms, "bornTime": now_ms(), "initMode": 0,
            }  # fmt: skip
            for opaque in range(3):
                writer.write(raw_frame(raw_header(int(RequestCode.POP_MESSAGE), fields, opaque)))
            await asyncio.sleep(WASTE_S)
            writer.close()
            await writer.wait_closed()


def delivery_of(number: int, handle: str) -> Delivery:
    """Return the delivery of a message by its handle."""
    info = decode_extra_info(handle)
    place = Place(info.retry, info.queue_id, info.queue_offset)
    return Delivery(number, place, info.pop_time, info.pop_time + info.invisible_time, handle)


def _succeeded(answer: Command | None) -> bool:
    return answer is not None and answer.code == ResponseCode.SUCCESS
