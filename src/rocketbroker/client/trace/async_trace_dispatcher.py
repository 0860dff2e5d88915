"""Message traces, collected and sent in the background (org.apache.rocketmq.client.trace.AsyncTraceDispatcher)."""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable

from rocketbroker.client.core.client_instance import Namespace
from rocketbroker.client.core.message import Message, MessageType, SendMessageContext, SendStatus
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage, original_topic
from rocketbroker.codec.message.message_const import PROPERTY_MSG_REGION, PROPERTY_TRACE_SWITCH
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.trace_data import (
    EndTransactionTrace,
    PubTrace,
    SubAfterTrace,
    SubBeforeTrace,
    Trace,
    encode_trace,
    trace_keys,
)
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.lifecycle import TaskOwner

log = logging.getLogger(__name__)

_INTERVAL_S = 0.5
# Limit for everything that is sent at the end.
_STOP_TIMEOUT_S = 5.0
# Traces that wait; beyond these the oldest are dropped.
_MOST_WAITING = 2048
_MOST_IN_A_MESSAGE = 100
_MOST_BODY_BYTES = 128_000
# All properties of a message share 32,767 bytes.
_MOST_KEY_BYTES = 30_000
# The broker's maxKeysPerMessage is 128 by default.
_MOST_KEYS = 128
# Ordinals of org.apache.rocketmq.common.message.MessageType, and of ConsumeReturnType.
_MESSAGE_TYPES = {MessageType.NORMAL: 0, MessageType.TRANSACTION: 1, MessageType.DELAY: 3, MessageType.ORDER: 4}
_TRANSACTION_END = 2
_SUCCESS, _FAILED = 0, 4
_DEFAULT_REGION = "DefaultRegion"


class AsyncTraceDispatcher:
    """Sends the traces of one producer or consumer to the trace topic; a trace that cannot be sent is dropped.

    Args:
        send: sends a message to the trace topic, or raises a RocketBrokerError.
        topic: the trace topic (customizedTraceTopic).
        namespace: prefix of names, which traces leave out.
        group: the group of the producer or consumer.
        clock: source of time.
    """

    def __init__(
        self, send: Callable[[Message], Awaitable[object]], topic: str, namespace: Namespace, group: str, clock: Clock
    ) -> None:
        self._send = send
        self._topic = topic
        self._namespace = namespace
        self._group = namespace.unwrap(group)
        self._clock = clock
        self._waiting: deque[Trace] = deque()
        self._in_flight: list[Trace] = []
        self._flushing = asyncio.Lock()
        self._dropped = 0
        self._tasks = TaskOwner("async-trace-dispatcher")

    def start(self) -> None:
        """Send what is collected from now on, twice a second."""
        self._tasks.every(_INTERVAL_S, self._flush, "flush")

    async def stop(self) -> None:
        """Send the rest, unless that takes too long."""
        reason: object = None
        try:
            async with asyncio.timeout(_STOP_TIMEOUT_S), self._flushing:
                await self._send_waiting()
        except TimeoutError:
            reason = f"no broker stored them within {_STOP_TIMEOUT_S:g} s after the end"
        except RocketBrokerError as error:
            reason = error
        finally:
            await self._tasks.stop()
        if reason is not None:
            self._in_flight.extend(self._waiting)
            self._waiting.clear()
            self._warn_lost(reason)

    def append(self, trace: Trace) -> None:
        """Collect a trace."""
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            self._dropped += 1
        self._waiting.append(trace)

    async def _flush(self) -> None:
        async with self._flushing:
            try:
                await self._send_waiting()
            except RocketBrokerError as error:
                self._warn_lost(error)

    async def _send_waiting(self) -> None:
        """Send messages until no trace waits or a send fails."""
        if self._dropped:
            log.warning("group %s: %d traces were dropped, since %d wait", self._group, self._dropped, _MOST_WAITING)
            self._dropped = 0
        while self._waiting:
            await self._send(self._next_message())
            self._in_flight.clear()

    def _next_message(self) -> Message:
        """Take the traces that fit into one message; keys that do not fit are left out."""
        texts: list[bytes] = []
        keys: dict[str, None] = {}
        body_room, key_room = _MOST_BODY_BYTES, _MOST_KEY_BYTES
        while self._waiting and len(texts) < _MOST_IN_A_MESSAGE:
            text = encode_trace(self._waiting[0]).encode()
            sizes = {key: len(key.encode()) + 1 for key in trace_keys(self._waiting[0]) if key not in keys}
            fits = len(text) <= body_room and sum(sizes.values()) <= key_room and len(keys) + len(sizes) <= _MOST_KEYS
            if texts and not fits:
                break
            self._in_flight.append(self._waiting.popleft())
            texts.append(text)
            body_room -= len(text)
            for key, size in sizes.items():
                if size <= key_room and len(keys) < _MOST_KEYS:
                    keys[key] = None
                    key_room -= size
        return Message(self._topic, b"".join(texts), keys=tuple(keys))

    def _warn_lost(self, reason: object) -> None:
        log.warning("group %s: %d traces were not sent: %s", self._group, len(self._in_flight), reason)
        self._in_flight.clear()

    # -- sends

    def send_message_before(self, context: SendMessageContext) -> None:
        """Ignore the beginning of a try; its context has the time."""

    def send_message_after(self, context: SendMessageContext) -> None:
        """Trace a send that a broker answered, unless the broker switched traces off."""
        result = context.result
        if context.queue.topic == self._topic or result is None or result.region_id is None or not result.trace_on:
            return
        first = context.messages[0]
        keys = first.keys or ""
        self.append(
            PubTrace(
                context.start_ms,
                result.region_id,
                self._group,
                self._namespace.unwrap(context.queue.topic),
                result.msg_id,
                first.tags or "",
                keys if isinstance(keys, str) else " ".join(keys),
                context.broker_addr,
                sum(len(message.body) for message in context.messages),
                self._clock.time_ms() - context.start_ms,
                _MESSAGE_TYPES[context.msg_type],
                result.offset_msg_id,
                result.send_status is SendStatus.SEND_OK,
            )
        )

    # -- transactions

    def end_transaction(
        self, message: Message | MessageExt, msg_id: str, transaction_id: str, state: str, broker: str, *, checked: bool
    ) -> None:
        """Trace the outcome of a transaction; ``checked`` if a broker asked for it."""
        keys = message.keys or ""
        self.append(
            EndTransactionTrace(
                self._clock.time_ms(),
                _DEFAULT_REGION,
                self._group,
                self._namespace.unwrap(message.topic),
                msg_id,
                message.tags or "",
                keys if isinstance(keys, str) else " ".join(keys),
                broker,
                _TRANSACTION_END,
                transaction_id,
                state,
                checked,
            )
        )

    # -- consumption

    def consume_message(self, received: ReceivedMessage) -> None:
        """Trace the begin of a consumption, and its end once the message has an outcome."""
        if original_topic(received.message_ext) == self._topic:
            return  # its traces would be consumed, and traced, for ever
        properties = received.properties
        region_id = properties.get(PROPERTY_MSG_REGION)
        if region_id is None or properties.get(PROPERTY_TRACE_SWITCH) == "false":
            return
        start_ms, request_id, keys = self._clock.time_ms(), uuid.uuid4().hex.upper(), received.keys or ""
        msg_id = received.msg_id
        self.append(
            SubBeforeTrace(start_ms, region_id, self._group, request_id, msg_id, received.reconsume_times, keys)
        )

        def end(outcome: Outcome) -> None:
            success = outcome is Outcome.ACKNOWLEDGED
            cost_ms, code = self._clock.time_ms() - start_ms, _SUCCESS if success else _FAILED
            self.append(SubAfterTrace(request_id, msg_id, cost_ms, success, keys, code, start_ms, self._group))

        received.observers += (end,)
