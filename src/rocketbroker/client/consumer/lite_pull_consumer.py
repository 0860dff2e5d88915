"""Consumer that is asked for messages (org.apache.rocketmq.client.consumer.DefaultLitePullConsumer)."""

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Unpack

from rocketbroker.client.consumer.consume_hooks import ConsumeHooks, ConsumeMessageHook
from rocketbroker.client.consumer.consumer_settings import ConsumerOptions, ConsumerSettings
from rocketbroker.client.consumer.group_consumer import GroupConsumer
from rocketbroker.client.consumer.process_queue import ProcessQueue
from rocketbroker.client.core.client_config import ClientConfig
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import ClientStateError
from rocketbroker.client.core.options import Count, SecondsFrom0, checked
from rocketbroker.client.core.received_message import Outcome, ReceivedMessage
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumeMessageDirectlyResult, ConsumeType
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import BrokerResponseError


class LitePullConsumer(GroupConsumer):
    """Pulls ahead and gives out messages by ``poll``, of a share of the group's queues or of given queues.

    ``async with LitePullConsumer("group", "127.0.0.1:9876") as consumer: await consumer.subscribe("topic")``, then
    ``messages = await consumer.poll()``. The messages of a poll count as consumed when the next poll begins.

    Args:
        group: the consumer group.
        config: ``host:port`` of the name servers, joined by ``;``, or a ClientConfig; not needed with ``client``.
        client: an instance to share with others, which its owner starts and stops.
        auto_commit: commit what earlier polls returned every ``persist_interval_s`` and at the end; otherwise call
            ``commit``.
        hooks: called with each message of a poll; its consumption ends with the next ``poll`` or ``commit``.
        options: the settings of ``ConsumerOptions``.
    """

    @checked
    def __init__(
        self,
        group: str,
        config: str | ClientConfig = "",
        *,
        client: ClientInstance | None = None,
        auto_commit: bool = True,
        hooks: Sequence[ConsumeMessageHook] = (),
        clock: Clock | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        settings = ConsumerSettings(consume_type=ConsumeType.CONSUME_ACTIVELY, **options)
        super().__init__(group, config, client, settings, clock)
        self._auto_commit = auto_commit
        self._paused: set[MessageQueue] = set()
        # Runs of messages of one queue.
        self._ready: deque[tuple[ProcessQueue, deque[MessageExt]]] = deque()
        self._arrived = asyncio.Event()
        self._polled: list[tuple[ProcessQueue, MessageExt]] = []
        self._hooks = ConsumeHooks(self._client, self.group, hooks, self._clock)
        # The messages of the last poll, if there are hooks.
        self._observed: list[ReceivedMessage] = []
        self._consumed: dict[MessageQueue, tuple[ProcessQueue, int]] = {}

    async def start(self) -> None:
        """Start, and take the queues of the topics subscribed to before; errors as in ``subscribe``."""
        await super().start()
        self._hooks.start()

    @checked
    async def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Consume given queues, whoever else is in the group; replaces those given before.

        Raises:
            ClientStateError: the consumer is closed, or has subscriptions.
        """
        if self._closed:
            self._check_started()
        await self._queues.assign(queues)

    @checked
    async def poll(self, timeout_s: SecondsFrom0 = 5.0, *, max_messages: Count = 32) -> list[MessageExt]:
        """Return messages, in order within each queue; wait for the first one, and return none after a time.

        Args:
            timeout_s: seconds to wait.
            max_messages: most messages to return.

        Raises:
            ClientStateError: the consumer is not started, or is closed.
        """
        self._check_started()
        self._count_polled()
        try:
            async with asyncio.timeout(timeout_s):
                while not (taken := self._take(max_messages)):
                    self._arrived.clear()
                    await self._arrived.wait()
                    self._check_started()
        except TimeoutError:
            return []
        self._polled = taken
        if self._hooks:
            self._observed = [self._hooks.begin(message, held.queue) for held, message in taken]
        return [message for _, message in taken]

    async def commit(self) -> None:
        """Commit that all messages returned so far are consumed; log a failure."""
        self._check_started()
        self._count_polled()
        # A queue that was lost or moved since has another ProcessQueue, or none.
        owned = {queue: at for queue, (held, at) in self._consumed.items() if not held.dropped}
        for queue, offset in owned.items():
            self._offsets.update(queue, offset)
        self._consumed.clear()
        await self._offsets.persist(owned)

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Continue a queue at an offset; the group's offset changes with the next commit.

        Raises:
            ClientStateError: the consumer does not have the queue.
        """
        self._check_queue(queue)
        self._queues.table.seek(queue, offset)
        self._note(self._queues.table.queues[queue], offset)

    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """Continue a queue at its first message."""
        self._check_queue(queue)
        await self.seek(queue, await self._client.offsets.min_offset(queue))

    async def seek_to_end(self, queue: MessageQueue) -> None:
        """Continue a queue after its last message."""
        self._check_queue(queue)
        await self.seek(queue, await self._client.offsets.max_offset(queue))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Return no messages of some queues; what is pulled ahead stays within ``flow_control``."""
        self._paused.update(queues)

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Return messages of paused queues again."""
        self._paused.difference_update(queues)
        self._arrived.set()

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's offset of a queue, None if there is none."""
        self._check_started()
        return await self._offsets.read(queue)

    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """Return the offset of the first message of a queue stored at a time or after it."""
        self._check_started()
        return await self._client.offsets.search_offset(queue, timestamp_ms)

    async def fetch_message_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues of a topic, in order."""
        self._check_started()
        return (await self._client.routes.route(self._client.namespace.wrap(topic))).subscribe_queues

    def _put(self, held: ProcessQueue, messages: Iterable[MessageExt]) -> None:
        self._ready.append((held, deque(messages)))
        self._arrived.set()

    def _skip(self, held: ProcessQueue) -> None:
        if self._auto_commit:
            super()._skip(held)

    def _take(self, number: int) -> list[tuple[ProcessQueue, MessageExt]]:
        taken: list[tuple[ProcessQueue, MessageExt]] = []
        kept: list[tuple[ProcessQueue, deque[MessageExt]]] = []
        while self._ready and len(taken) < number:
            held, messages = self._ready.popleft()
            if held.dropped:
                continue
            if held.queue not in self._paused:
                while messages and len(taken) < number:
                    taken.append((held, messages.popleft()))
            if messages:
                kept.append((held, messages))
        self._ready.extendleft(reversed(kept))
        return taken

    def _count_polled(self) -> None:
        """Count the messages of the last poll as consumed, except those of queues that were lost since."""
        for held, message in self._polled:
            if held.remove(message):
                self._note(held, held.commit_offset)
        for (held, _), received in zip(self._polled, self._observed, strict=False):  # none without hooks
            self._hooks.end([received], Outcome.RETRIED if held.dropped else Outcome.ACKNOWLEDGED)
        self._polled, self._observed = [], []

    def _note(self, held: ProcessQueue, offset: int) -> None:
        """Let the next commit set the offset of a queue."""
        self._consumed[held.queue] = held, offset
        if self._auto_commit:
            self._offsets.update(held.queue, offset)

    async def _finish(self) -> None:
        """Discard unpolled messages; those of the last poll count as consumed unless the program failed."""
        if self._closing_error is None:
            self._count_polled()
        self._hooks.end(self._observed, Outcome.RETRIED)
        self._ready.clear()
        self._arrived.set()
        await self._hooks.stop()

    def _check_queue(self, queue: MessageQueue) -> None:
        self._check_started()
        if queue not in self._queues.table.queues:
            raise ClientStateError(
                f"consumer {self.group} does not have {queue}; it has {len(self.queues)} queues, see consumer.queues"
            )

    async def consume_directly(self, _message: MessageExt, _broker_name: str) -> ConsumeMessageDirectlyResult:
        """Reject the request: there is no handler.

        Raises:
            BrokerResponseError: SYSTEM_ERROR.
        """
        remark = f"consumer {self.group} has no handler: it polls, and takes no message on request"
        raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
