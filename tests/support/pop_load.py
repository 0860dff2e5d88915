"""Clients that pop from a broker over TCP while it is killed: they acknowledge late, twice, wrongly, or not at all."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from functools import partial
from itertools import count
from typing import Any

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
_PAUSE_S = 0.05


def now_ms() -> int:
    """Return the time by the wall clock."""
    return time.time_ns() // 1_000_000


class PopLoad:
    """Producers and consumers of one broker, which note what they see.

    Args:
        address: the broker.
        seed: decides what the clients do.

    Attributes:
        free: notes of the group that pops without order.
        ordered: notes of the group that pops in order.
        counts: what happened, by name.
    """

    def __init__(self, address: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.free, self.ordered = Journal(), Journal()
        self.counts: Counter[str] = Counter()
        self._address = address
        self._client = RemotingClient()
        self._numbers = count()
        self._running = True
        self._late: set[asyncio.Task[None]] = set()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Let all clients work until the context ends, then let them finish."""
        async with asyncio.TaskGroup() as tasks:
            for queue_id in range(QUEUES):
                tasks.create_task(self._repeat(partial(self._send, queue_id)))
            for _ in range(3):
                tasks.create_task(self._repeat(self._consume))
                tasks.create_task(self._consume_in_order())
            tasks.create_task(self._repeat(self._stall))
            try:
                yield
            finally:
                self._running = False
        await asyncio.gather(*self._late)

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

    async def stop(self) -> None:
        """Close the connection."""
        await self._client.stop()

    # -- requests

    async def _ask(self, code: RequestCode, header: CommandCustomHeader | None, body: bytes = b"") -> Command | None:
        """Return the answer to a request, ``None`` if it was lost."""
        try:
            return await self._client.invoke(self._address, request(code, header, body), ANSWER_S)
        except RemotingError:
            self.counts["lost"] += 1
            await asyncio.sleep(_PAUSE_S)
            return None

    async def _repeat(self, action: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while self._running:
            await action()

    async def _send(self, queue_id: int) -> None:
        if len(self.ordered.sent) - len(self.ordered.by_number) > MOST_BEHIND:
            await asyncio.sleep(_PAUSE_S)
            return
        number = next(self._numbers)
        self.free.sent[number] = self.ordered.sent[number] = False
        header = SendMessageRequestHeader("PG", TOPIC, "TBW102", QUEUES, queue_id, 0, now_ms(), 0, "")
        answer = await self._ask(RequestCode.SEND_MESSAGE, header, b"%d" % number)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            self.free.sent[number] = self.ordered.sent[number] = True
            self.counts["sent"] += 1
        await asyncio.sleep(self.chance.uniform(0.005, 0.02))

    def _pop_header(self, group: str, poll_ms: int, **fields: Any) -> PopMessageRequestHeader:
        invisible_ms, most = self.chance.choice(INVISIBLE_MS), self.chance.choice([1, 4, 32])
        return PopMessageRequestHeader(group, TOPIC, -1, most, invisible_ms, poll_ms, now_ms(), 0, **fields)

    async def _pop(self, journal: Journal, header: PopMessageRequestHeader) -> list[Delivery] | None:
        """Return what a pop delivered, ``None`` if its answer was lost."""
        answer = await self._ask(RequestCode.POP_MESSAGE, header)
        if answer is None:
            return None
        if answer.code != ResponseCode.SUCCESS:
            self.counts[ResponseCode(answer.code).name] += 1
            return []
        answer.header = from_ext_fields(answer.header, PopMessageResponseHeader)
        found = []
        for each in handed(answer, header):
            info = each.info
            place = Place(info.retry, info.queue_id, info.queue_offset)
            ends_ms = info.pop_time + info.invisible_time
            found.append(Delivery(int(each.body), place, info.pop_time, ends_ms, each.handle))
            self.counts["again" if each.message.reconsume_times else "first"] += 1
        journal.delivered(found)
        return found

    async def _ack(self, group: str, delivery: Delivery, handle: str | None = None) -> None:
        """Acknowledge a message; with another ``handle`` it counts for nothing."""
        if handle is None:
            delivery.acknowledging(now_ms())
        info = decode_extra_info(handle or delivery.handle)
        where = stored_in(group, info, TOPIC), info.queue_id
        header = AckMessageRequestHeader(group, *where, handle or delivery.handle, info.queue_offset)
        answer = await self._ask(RequestCode.ACK_MESSAGE, header)
        if answer is not None and answer.code == ResponseCode.SUCCESS and handle is None:
            delivery.acknowledged(now_ms())

    async def _ack_batch(self, group: str, deliveries: Sequence[Delivery]) -> None:
        """Acknowledge messages of one pop by one request."""
        acks: dict[tuple[str, int], BatchAck] = {}
        for each in deliveries:
            each.acknowledging(now_ms())
            info = decode_extra_info(each.handle)
            ack = acks.get((info.retry, info.queue_id))
            if ack is None:
                start, where = info.ck_queue_offset, (info.queue_id, info.revive_qid)
                times = info.pop_time, info.invisible_time
                ack = BatchAck(group, TOPIC, info.retry, start, *where, *times, b"")
                acks[info.retry, info.queue_id] = ack
            bits = int.from_bytes(ack.bit_set, "little") | 1 << info.queue_offset - ack.start_offset
            ack.bit_set = bits.to_bytes(-(-bits.bit_length() // 8), "little")
        body = BatchAckMessageRequestBody("broker-a", list(acks.values())).encode()
        answer = await self._ask(RequestCode.BATCH_ACK_MESSAGE, None, body)
        if answer is not None and answer.code == ResponseCode.SUCCESS:
            for each in deliveries:
                each.acknowledged(now_ms())

    async def _change(self, group: str, delivery: Delivery, invisible_ms: int) -> bool:
        """Let a message come again at another time; return false if that is not certain."""
        info, before_ms = decode_extra_info(delivery.handle), delivery.visible_ms
        delivery.changing(now_ms() + invisible_ms)
        where = stored_in(group, info, TOPIC), info.queue_id
        header = ChangeInvisibleTimeRequestHeader(group, *where, delivery.handle, info.queue_offset, invisible_ms)
        answer = await self._ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)
        if answer is None or answer.code != ResponseCode.SUCCESS:
            return False
        fields = from_ext_fields(answer.header, ChangeInvisibleTimeResponseHeader)
        new = info._replace(
            ck_queue_offset=info.ck_queue_offset if info.is_order else info.queue_offset,
            pop_time=fields.pop_time,
            invisible_time=fields.invisible_time,
        )
        delivery.handle = new.encode()
        delivery.changed(before_ms, fields.pop_time + fields.invisible_time, now_ms())
        return True

    # -- consumers

    async def _consume(self) -> None:
        """Pop, and treat the messages as consumers do and as they should not."""
        found = await self._pop(self.free, self._pop_header(GROUP, POLL_MS))
        if found and self.chance.random() < 0.3:
            await self._ack_batch(GROUP, found)
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
                await self._ack(group, delivery)
            case "acked twice":
                await self._ack(group, delivery)
                await self._ack(group, delivery)
            case "acked late":
                self._late.add(asyncio.create_task(self._ack_late(group, delivery)))
            case "foreign":
                other = decode_extra_info(delivery.handle)._replace(broker_name="broker-b").encode()
                await self._ack(group, delivery, other)
            case "changed":
                await self._change_and_ack(group, delivery)

    async def _ack_late(self, group: str, delivery: Delivery) -> None:
        await asyncio.sleep(max(delivery.visible_ms - now_ms() + self.chance.randrange(-20, 200), 0) / 1000)
        await self._ack(group, delivery)

    async def _change_and_ack(self, group: str, delivery: Delivery) -> None:
        old = decode_extra_info(delivery.handle)
        if not await self._change(group, delivery, self.chance.choice([0, 300, 900])):
            return
        if not old.is_order:
            await self._ack(group, delivery, old.encode())
        if self.chance.random() < 0.5:
            await self._ack(group, delivery)

    async def _consume_in_order(self) -> None:
        """Pop in order; ask again with the same attempt id while the answer is lost."""
        attempt = ""
        while self._running:
            attempt = attempt or f"{self.chance.random()}"
            found = await self._pop(self.ordered, self._pop_header(ORDERED, POLL_MS, order=True, attempt_id=attempt))
            if found is None:
                continue
            attempt = ""
            for each in found:
                await self._treat(ORDERED, each)

    async def _stall(self) -> None:
        """Pop over a connection that reads nothing: nobody gets these messages."""
        host, _, port = self._address.rpartition(":")
        with contextlib.suppress(OSError):
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            fields = {
                "consumerGroup": GROUP, "topic": TOPIC, "queueId": -1, "maxMsgNums": 8, "pollTime": POLL_MS,
                "invisibleTime": self.chance.choice(INVISIBLE_MS), "bornTime": now_ms(), "initMode": 0,
            }  # fmt: skip
            for opaque in range(3):
                writer.write(raw_frame(raw_header(int(RequestCode.POP_MESSAGE), fields, opaque)))
            self.counts["stalled"] += 1
            await asyncio.sleep(self.chance.uniform(0.2, 0.5))
            writer.close()
            await writer.wait_closed()

    async def _take_rest(self, group: str, journal: Journal) -> None:
        is_order = group == ORDERED
        header = self._pop_header(group, 50, order=is_order, attempt_id=f"{self.chance.random()}")
        header.max_msg_nums = 32
        if found := await self._pop(journal, header):
            await self._ack_batch(group, found)
