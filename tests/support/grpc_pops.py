"""Clients of the gRPC port for ``PopLoad``: receives that are cancelled, and messages whose time the proxy renews."""

import asyncio
from collections import Counter
from collections.abc import Coroutine, Sequence
from typing import Any

import grpc

from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.message_conversion import to_duration
from tests.support.grpc_calls import metadata_of, method
from tests.support.grpc_script import message, resource
from tests.support.pop_journal import Delivery
from tests.support.pop_load import ANSWER_S, GROUP, PAUSE_S, POLL_MS, TOPIC, WASTE_S, PopLoad, delivery_of, now_ms

#: Settings of a proxy for the times of ``PopLoad``; what it renews expires after a second.
SETTINGS: dict[str, str | int] = {
    "minInvisibleTimeMillsForRecv": 0,
    "grpcClientConsumerMinLongPollingTimeoutMillis": 50,
    "defaultInvisibleTimeMills": 1_000,
    "renewSchedulePeriodMillis": 100,
    "renewAheadTimeMillis": 500,
}
# How long a message is held: beyond the time that it was popped with.
HELD_S = (0.5, 2.5)
_CHANNEL = [
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 500),
]
_METADATA = metadata_of("load")
_NO_MESSAGES = {pb.MESSAGE_NOT_FOUND, pb.OK}


class GrpcPops:
    """Requests to a gRPC port.

    Args:
        endpoints: "host:port" of the proxy.
    """

    # The server maps message groups to queues.
    senders = 1

    def __init__(self, endpoints: str) -> None:
        self.counts = Counter[str]()
        self._channel = grpc.aio.insecure_channel(endpoints, options=_CHANNEL)

    async def stop(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def _ask(self, name: str, request: Any) -> Any | None:
        """Return the reply to a call, ``None`` if it was lost."""
        try:
            return await method(self._channel, name)(request, metadata=_METADATA, timeout=ANSWER_S)
        except grpc.aio.AioRpcError as error:
            await self._lost(error.code().name)
            return None

    async def _lost(self, why: str) -> None:
        self.counts["lost"] += 1
        self.counts[why] += 1
        await asyncio.sleep(PAUSE_S)

    async def send(self, number: int, sender: int) -> bool:
        """Send a message to the queue of its message group."""
        sent = message(TOPIC, number, b"%d" % number, message_group=f"g{number % 8}", message_type=pb.FIFO)
        reply = await self._ask("SendMessage", pb.SendMessageRequest(messages=[sent]))
        return await self._is_ok(reply)

    async def _is_ok(self, reply: Any | None) -> bool:
        if reply is None:
            return False
        if reply.status.code == pb.OK:
            return True
        await self._lost(pb.Code.Name(reply.status.code))
        return False

    def _receive(self, group: str, most: int, poll_ms: int, **fields: Any) -> Any:
        request = pb.ReceiveMessageRequest(
            group=resource(group),
            message_queue=pb.MessageQueue(topic=resource(TOPIC)),
            batch_size=most,
            long_polling_timeout=to_duration(poll_ms),
            **fields,
        )
        return method(self._channel, "ReceiveMessage")(request, metadata=_METADATA, timeout=ANSWER_S)

    async def _read(self, call: Any) -> list[Delivery] | None:
        """Return what a receive delivered, ``None`` if its end was lost."""
        found = []
        try:
            async for reply in call:
                if reply.HasField("message"):
                    handle = reply.message.system_properties.receipt_handle
                    found.append(delivery_of(int(reply.message.body), handle))
                elif reply.HasField("status") and reply.status.code not in _NO_MESSAGES:
                    await self._lost(pb.Code.Name(reply.status.code))
                    return None
        except grpc.aio.AioRpcError as error:
            await self._lost(error.code().name)
            return None
        return found

    async def pop(
        self, group: str, most: int, invisible_ms: int, poll_ms: int, attempt: str = ""
    ) -> list[Delivery] | None:
        """Receive messages; the settings of the group say if in order."""
        times = {"invisible_duration": to_duration(invisible_ms)}
        return await self._read(self._receive(group, most, poll_ms, **times, attempt_id=attempt))

    async def hold(self, group: str, most: int) -> list[Delivery] | None:
        """Receive messages whose time the proxy renews."""
        return await self._read(self._receive(group, most, POLL_MS, auto_renew=True))

    async def ack(self, group: str, handles: Sequence[str]) -> bool:
        """Acknowledge messages by one call."""
        entries = [pb.AckMessageEntry(receipt_handle=each) for each in handles]
        request = pb.AckMessageRequest(group=resource(group), topic=resource(TOPIC), entries=entries)
        reply = await self._ask("AckMessage", request)
        return reply is not None and reply.status.code == pb.OK

    async def change(self, group: str, handle: str, invisible_ms: int) -> str | None:
        """Change the time of a message."""
        request = pb.ChangeInvisibleDurationRequest(
            group=resource(group),
            topic=resource(TOPIC),
            receipt_handle=handle,
            invisible_duration=to_duration(invisible_ms),
        )
        reply = await self._ask("ChangeInvisibleDuration", request)
        return str(reply.receipt_handle) if reply is not None and reply.status.code == pb.OK else None

    async def waste(self, group: str, invisible_ms: int) -> None:
        """Receive messages and cancel the calls, which may be before, while or after they come."""
        calls = [self._receive(group, 8, POLL_MS, invisible_duration=to_duration(invisible_ms)) for _ in range(3)]
        for call in calls:
            await asyncio.sleep(WASTE_S / 3)
            call.cancel()


class GrpcPopLoad(PopLoad):
    """A load over gRPC, with a consumer more, which holds messages for longer than they are invisible.

    Attributes:
        faults: number of servers that were ended; it is raised before each end.
        problems: messages that the proxy did not hold.
    """

    def __init__(self, client: GrpcPops, seed: int) -> None:
        super().__init__(client, seed)
        self.faults = 0
        self.problems: list[str] = []
        self._grpc = client

    def _work(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._work(), self._repeat(self._hold)]

    async def _hold(self) -> None:
        """Acknowledge messages late; while no server ends they are not late, and come to nobody else before."""
        faults = self.faults
        found = await self._grpc.hold(GROUP, 4)
        self._note(self.free, found or ())
        if not found:
            return
        await asyncio.sleep(self.chance.uniform(*HELD_S))
        for each in found:
            each.acknowledging(now_ms())
            is_acked = await self._grpc.ack(GROUP, [each.handle])
            if faults != self.faults:
                continue
            self.counts["held"] += 1
            each.visible_ms = max(each.visible_ms, now_ms() + 1)
            if is_acked:
                each.acknowledged(now_ms())
            else:
                self.problems.append(f"message {each.number} could not be acknowledged after {HELD_S} s: {each}")
