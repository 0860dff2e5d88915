"""Parts for tests of consumers: records, process queues, and an offset store in memory."""

from collections.abc import Iterable

from rocketbroker.client.consumer.process_queue import FlowControl, HeldBytes, ProcessQueue
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.codec.message.message_decoder import decode_record, encode_record
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties

QUEUE = MessageQueue("T", "broker-a", 0)
HOST = host_bytes("127.0.0.1", 10911)


def message(offset: int, body: bytes = b"body", topic: str = "T", **properties: str) -> MessageExt:
    """Return a message as a pull gives it."""
    encoded = encode_properties(properties)
    return decode_record(
        encode_record(0, 0, offset, offset * 100, 0, 1, HOST, 2, HOST, 0, 0, body, topic.encode(), encoded)
    )


def process_queue(
    offsets: Iterable[int] = (), limits: FlowControl | None = None, *, queue: MessageQueue = QUEUE
) -> ProcessQueue:
    """Return a process queue that holds messages at some offsets."""
    held = ProcessQueue(queue, 0, 0.0, HeldBytes(limits or FlowControl()))
    messages = [message(offset) for offset in offsets]
    held.put(messages)
    held.next_offset = messages[-1].queue_offset + 1 if messages else 0
    return held


async def _keep_outcome(_message: ReceivedMessage, _outcome: Outcome, _delay_level: int) -> None: ...


def consumption(of: MessageExt, held: ProcessQueue) -> ReceivedMessage:
    """Return a message as a consumer gives it out."""
    return ReceivedMessage(of, held.queue, "CG", _keep_outcome)


class MemoryOffsets:
    """Offset store whose persisted offsets a test sees."""

    def __init__(self, persisted: dict[MessageQueue, int] | None = None) -> None:
        self.offsets: dict[MessageQueue, int] = {}
        self.persisted = persisted or {}

    def open(self) -> None: ...

    def close(self) -> None: ...

    async def read(self, queue: MessageQueue) -> int | None:
        return self.persisted.get(queue)

    def update(self, queue: MessageQueue, offset: int) -> None:
        self.offsets[queue] = offset

    async def persist(self, queues: Iterable[MessageQueue]) -> None:
        self.persisted.update({queue: self.offsets[queue] for queue in queues if queue in self.offsets})

    def remove(self, queue: MessageQueue) -> None:
        self.offsets.pop(queue, None)
