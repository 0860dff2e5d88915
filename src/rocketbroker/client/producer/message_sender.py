"""Sends of a producer: choice of the queue, tries on other brokers, hooks (DefaultMQProducerImpl.sendDefaultImpl)."""

import asyncio
import itertools
import logging
import os
import random
import secrets
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence

import msgspec

from rocketbroker.client.core.client_instance import ClientInstance, Namespace, raise_unreachable
from rocketbroker.client.core.errors import ClientError, SendFailedError
from rocketbroker.client.core.message import (
    Message,
    SendMessageContext,
    SendMessageHook,
    SendResult,
    SendStatus,
    send_result,
)
from rocketbroker.client.core.requests import V5_0_0_SNAPSHOT
from rocketbroker.client.core.topic_route_table import TopicRoute
from rocketbroker.client.producer.outgoing import Compression, Outgoing, prepare_message
from rocketbroker.client.trace.async_trace_dispatcher import AsyncTraceDispatcher
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import UniqueIds, ip_bytes
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import (
    BrokerResponseError,
    RemotingConnectError,
    RemotingError,
    RemotingTimeoutError,
    RemotingTooMuchRequestError,
)

log = logging.getLogger(__name__)


class BackPressure:
    """Lets so many sends, and so many bytes of bodies, be in flight; others wait in order.

    Args:
        sends: number of sends in flight.
        size: bytes of their bodies; a larger body goes alone.
    """

    def __init__(self, sends: int, size: int) -> None:
        self._most_sends = sends
        self._most_bytes = size
        self._sends = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def try_acquire(self, size: int) -> bool:
        """Take the room for a send if there is some and nobody waits; ``release`` it with the same size afterwards."""
        if self._waiting or not self._fits(size):
            return False
        self._sends += 1
        self._bytes += size
        return True

    async def acquire(self, size: int, timeout_s: float) -> None:
        """Take the room for a send in turn; ``release`` it with the same size afterwards.

        Raises:
            RemotingTooMuchRequestError: There was no room in time.
        """
        if self.try_acquire(size):
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = size, turn
        self._waiting.append(waiting)
        try:
            async with asyncio.timeout(timeout_s):
                await turn
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                self._admit()
            elif not turn.cancelled():
                self.release(size)
            if not isinstance(error, TimeoutError):
                raise
            raise RemotingTooMuchRequestError(
                f"no room for a send within {timeout_s:g} s: {self._sends} sends with {self._bytes:,} bytes are in "
                "flight; send fewer at a time, or raise back_pressure_sends or back_pressure_bytes"
            ) from None

    def release(self, size: int) -> None:
        """Make room for others."""
        self._sends -= 1
        self._bytes -= size
        if self._waiting:
            self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if not turn.cancelled():
                self._sends += 1
                self._bytes += size
                turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return not self._sends or (self._sends < self._most_sends and self._bytes + size <= self._most_bytes)


# Chooses one of a topic's writable queues for a message (MessageQueueSelector).
QueueSelector = Callable[[Sequence[MessageQueue], Message], MessageQueue]


def select_by_hash(sharding_key: str) -> QueueSelector:
    """Return a selector that sends equal keys to the same queue (SelectMessageQueueByHash)."""
    from rocketbroker.codec.message.tags_code import java_hash

    value = abs(java_hash(sharding_key))
    return lambda queues, _message: queues[value % len(queues)]


# Answer time from which a broker is avoided, and for how long, in seconds (latencyMax, notAvailableDuration).
_PAUSES_S = ((15.0, 30.0), (5.0, 10.0), (3.0, 6.0), (1.8, 5.0), (0.55, 2.0))
# A failed send counts as an answer after this time.
_FAILED_S = 10.0


class MQFaultStrategy:
    """Takes the queues of each topic in turn, from a random one on; avoids brokers that failed or were slow.

    Attributes:
        send_latency_enable: ``update`` must be called after each try.

    Args:
        monotonic: seconds of a clock that never goes back.
        send_latency_enable: avoid a slow or failed broker for a while, for all messages; else only a message that just
            failed there goes to another broker.
    """

    def __init__(self, monotonic: Callable[[], float], *, send_latency_enable: bool = False) -> None:
        self._monotonic = monotonic
        self.send_latency_enable = send_latency_enable
        self._turns: dict[str, Iterator[int]] = {}
        # Time until which a broker is avoided.
        self._avoided_until: dict[str, float] = {}

    def select(self, queues: Sequence[MessageQueue], last_broker: str | None = None) -> MessageQueue:
        """Return the next queue, if possible one of no avoided broker; at least one queue must be given.

        Args:
            queues: the writable queues of one topic.
            last_broker: the broker where this message failed last.
        """
        avoided: Collection[str | None] = (last_broker,)
        if self.send_latency_enable:
            now = self._monotonic()
            avoided = {last_broker, *(broker for broker, until in self._avoided_until.items() if until > now)}
        turns = self._turns.get(queues[0].topic)
        if turns is None:
            turns = self._turns[queues[0].topic] = itertools.count(random.randrange(len(queues)))
        for _ in queues:
            queue = queues[next(turns) % len(queues)]
            if queue.broker_name not in avoided:
                return queue
        return queues[next(turns) % len(queues)]

    def update(self, broker: str, took_s: float, *, failed: bool) -> None:
        """Note the time that a send to a broker took (updateFaultItem)."""
        counted = _FAILED_S if failed else took_s
        pause_s = next((pause for least, pause in _PAUSES_S if counted >= least), 0.0)
        if pause_s:
            self._avoided_until[broker] = self._monotonic() + pause_s
        else:
            self._avoided_until.pop(broker, None)


# Refusals that another broker, or the same one a little later, may not repeat (retryResponseCodes).
RETRY_RESPONSE_CODES = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
        ResponseCode.GO_AWAY,
    }
)

# Of these, the ones that say that the route is an old one.
_STALE_ROUTE_CODES = frozenset({ResponseCode.TOPIC_NOT_EXIST, ResponseCode.NO_PERMISSION, ResponseCode.GO_AWAY})
# Longest wait for a fresh route between two tries; a name server that does not answer leaves time for the next one.
_REFRESH_S = 0.5
_TRACE_GROUP = "_INNER_TRACE_PRODUCER"
_TRACE_TIMEOUT_S = 5.0


class MessageSender:
    """Sends encoded messages.

    Args:
        client: connections and routes.
        group: the producer group.
        clock: source of the born times.
        tries: most tries of a send to a queue that is chosen here.
        max_try_s: limit of each of them; None for half of the time that is left if another broker has the topic.
        accepts_any_status: a stored message counts as sent whatever its SendStatus.
        strategy: chooses queues.
        pressure: bounds the sends in flight.
        hooks: called around each try.
    """

    def __init__(  # noqa: PLR0913 - each is one thing that a send depends on
        self,
        client: ClientInstance,
        group: str,
        clock: Clock,
        *,
        tries: int,
        max_try_s: float | None = None,
        accepts_any_status: bool,
        strategy: MQFaultStrategy,
        pressure: BackPressure,
        hooks: Sequence[SendMessageHook],
    ) -> None:
        self._client = client
        self._group = group
        self._clock = clock
        self._tries = tries
        self._max_try_s = max_try_s
        self._accepts_any_status = accepts_any_status
        self._strategy = strategy
        self._pressure = pressure
        self._hooks = hooks

    async def send(
        self, outgoing: Outgoing, queue: MessageQueue | QueueSelector | None, timeout_s: float
    ) -> SendResult:
        """Send to a queue, once; or to queues in turn until one try succeeds. Errors as in ``Producer.send``."""
        loop = asyncio.get_running_loop()
        start = loop.time()
        size = len(outgoing.body)
        if not self._pressure.try_acquire(size):
            await self._pressure.acquire(size, timeout_s)
        try:
            routes = self._client.routes
            route = routes.known_publish_route(outgoing.topic)
            if route is None:
                route = await routes.publish_route(outgoing.topic, start + timeout_s - loop.time())
            if callable(queue):
                queue = queue(route.publish_queues, outgoing.messages[0])
            if queue is None:
                return await self._send_to_any(outgoing, route, start, timeout_s)
            return await self._send_to_chosen(outgoing, queue, start + timeout_s - loop.time())
        finally:
            self._pressure.release(size)

    async def send_oneway(
        self, outgoing: Outgoing, queue: MessageQueue | QueueSelector | None, timeout_s: float
    ) -> None:
        """Send and do not wait for an answer, only for the route and the connection."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        queues = (await self._client.routes.publish_route(outgoing.topic, timeout_s)).publish_queues
        if queue is None:
            queue = self._strategy.select(queues)
        elif callable(queue):
            queue = queue(queues, outgoing.messages[0])
        address = self._client.send_address(queue)
        context = self._before(outgoing, queue, address)
        try:
            request = self._request(outgoing, queue, oneway=True)
            await self._client.remoting.invoke_oneway(address, request, deadline - loop.time())
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._after(context)

    async def _send_to_chosen(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> SendResult:
        """Send to a queue, once; the broker may have moved, so a failure refreshes the route for the next send."""
        try:
            return await self._send_once(outgoing, queue, timeout_s)
        except (RemotingError, ClientError, BrokerResponseError) as error:
            if _may_have_moved(error):
                await self._client.routes.refresh_after_failure(outgoing.topic, 0.0)
            raise

    async def _send_to_any(self, outgoing: Outgoing, route: TopicRoute, start: float, timeout_s: float) -> SendResult:
        loop, routes = asyncio.get_running_loop(), self._client.routes
        causes: list[Exception] = []
        brokers: list[str] = []
        while len(causes) < self._tries and (left := start + timeout_s - loop.time()) > 0:
            queue = self._strategy.select(route.publish_queues, brokers[-1] if brokers else None)
            brokers.append(queue.broker_name)
            if self._max_try_s is not None:
                left = min(left, self._max_try_s)
            elif len(causes) + 1 < self._tries and route.has_other_brokers:
                left /= 2
            error = await self._try(outgoing, queue, left)
            if isinstance(error, SendResult):
                return error
            causes.append(error)
            if _may_have_moved(error):
                # Further tries go by the fresh route. When it was fetched within the last second and each of its
                # brokers has failed, the next try waits for the next lookup: by the same route all tries would be used
                # up in milliseconds, while a name server may know a moment later where the topic is. A broker that
                # denies the send is there, and a user without the right to it learns so at once.
                left = max(start + timeout_s - loop.time(), 0.0) if len(causes) < self._tries else 0.0
                is_denied = isinstance(error, BrokerResponseError) and error.code == ResponseCode.NO_PERMISSION
                has_others = not {each.broker_name for each in route.publish_queues} <= set(brokers)
                turn_s = 0.0 if is_denied or has_others else left / 2
                await routes.refresh_after_failure(outgoing.topic, min(left, _REFRESH_S), turn_s)
                route = routes.known_publish_route(outgoing.topic) or route
        cost = round((loop.time() - start) * 1000)
        if not causes:
            raise RemotingTimeoutError(
                f"not sent, topic {outgoing.topic}: the route and earlier sends took {cost} ms, and the limit is "
                f"{timeout_s * 1000:g} ms; raise the limit (timeout_s, send_timeout_s) or send fewer at a time"
            )
        text = f"sent {len(causes)} times within {cost} ms, topic {outgoing.topic}, brokers {', '.join(brokers)}"
        raise SendFailedError(f"{text}: {causes[-1]}", causes) from causes[-1]

    async def _try(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> SendResult | Exception:
        """Try once; return an error that a retry may cure, raise others."""
        timed, failed = self._strategy.send_latency_enable, True
        start = self._clock.monotonic() if timed else 0.0
        try:
            result = await self._send_once(outgoing, queue, timeout_s)
            failed = False
        except (RemotingError, ClientError) as error:
            return error
        except BrokerResponseError as error:
            if error.code not in RETRY_RESPONSE_CODES:
                raise
            return error
        finally:
            if timed:
                self._strategy.update(queue.broker_name, self._clock.monotonic() - start, failed=failed)
        if result.send_status is SendStatus.SEND_OK or self._accepts_any_status:
            return result
        return ClientError(f"broker {queue.broker_name} stored the message as {result.send_status.name} only")

    def _send_once(
        self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float
    ) -> Coroutine[None, None, SendResult]:
        send = self._send_with_hooks if self._hooks else self._exchange
        return send(outgoing, queue, self._client.send_address(queue), timeout_s)

    async def _send_with_hooks(
        self, outgoing: Outgoing, queue: MessageQueue, address: str, timeout_s: float
    ) -> SendResult:
        context = self._before(outgoing, queue, address)
        try:
            context.result = await self._exchange(outgoing, queue, address, timeout_s)
        except BaseException as error:
            context.error = error
            raise
        finally:
            self._after(context)
        return context.result

    async def _exchange(self, outgoing: Outgoing, queue: MessageQueue, address: str, timeout_s: float) -> SendResult:
        with_batch_id = True
        if outgoing.is_batch:
            loop = asyncio.get_running_loop()
            deadline = loop.time() + timeout_s
            # Brokers of 4.x would give the id of a batch to all its messages.
            broker = self._client.routes.broker_address(queue)
            version = await self._client.heartbeats.broker_version(broker, timeout_s)
            with_batch_id = version is None or version >= V5_0_0_SNAPSHOT
            timeout_s = deadline - loop.time()
        request = self._request(outgoing, queue, with_batch_id=with_batch_id)
        try:
            answer = await self._client.remoting.invoke(address, request, timeout_s)
        except RemotingConnectError as error:
            raise_unreachable(queue.broker_name, error, by_vip_channel=self._client.config.vip_channel_enabled)
        return send_result(answer, queue, outgoing.unique_ids, outgoing.msg_type)

    def _request(
        self, outgoing: Outgoing, queue: MessageQueue, *, oneway: bool = False, with_batch_id: bool = True
    ) -> Command:
        queue_nums = self._client.routes.default_topic_queue_nums
        return outgoing.request(
            self._group,
            queue,
            self._clock.time_ms(),
            queue_nums,
            oneway=oneway,
            unit_mode=self._client.config.unit_mode,
            with_batch_id=with_batch_id,
        )

    def _before(self, outgoing: Outgoing, queue: MessageQueue, address: str) -> SendMessageContext:
        namespace = self._client.namespace
        context = SendMessageContext(
            namespace.unwrap(self._group),
            [_shown(message, namespace) for message in outgoing.messages],
            outgoing.unique_ids,
            outgoing.msg_type,
            queue,
            address,
            self._clock.time_ms(),
        )
        for hook in self._hooks:
            try:
                hook.send_message_before(context)
            except Exception:
                log.exception("producer %s: the hook %r failed before a send", self._group, hook)
        return context

    def _after(self, context: SendMessageContext) -> None:
        for hook in self._hooks:
            try:
                hook.send_message_after(context)
            except Exception:
                log.exception("producer %s: the hook %r failed after a send", self._group, hook)


def _may_have_moved(error: Exception) -> bool:
    """Return true if a send may have failed because the topic or its broker is elsewhere by now."""
    return not isinstance(error, BrokerResponseError) or error.code in _STALE_ROUTE_CODES


def _shown(message: Message, namespace: Namespace) -> Message:
    """Return a message with the name of its topic that the application knows."""
    topic = namespace.unwrap(message.topic)
    return message if topic == message.topic else msgspec.structs.replace(message, topic=topic)


def unique_ids(client: ClientInstance, clock: Clock) -> Callable[[], str]:
    """Return a function that makes the unique ids of one producer's messages."""
    return UniqueIds(ip_bytes(client.client_ip), os.getpid(), secrets.randbits(32), clock.time_ms).create


def trace_dispatcher(client: ClientInstance, group: str, clock: Clock) -> AsyncTraceDispatcher | None:
    """Return a dispatcher that sends the traces of a producer or consumer, None unless ``enable_trace`` is set."""
    if not client.config.enable_trace:
        return None
    new_unique_id = unique_ids(client, clock)
    # Its sends have a bound of their own, and no hooks, which would trace the traces.
    sender = MessageSender(
        client,
        _TRACE_GROUP,
        clock,
        tries=3,
        accepts_any_status=True,
        strategy=MQFaultStrategy(clock.monotonic),
        pressure=BackPressure(100, 16 * 1024 * 1024),
        hooks=(),
    )

    async def send(message: Message) -> None:
        await sender.send(prepare_message(message, new_unique_id(), Compression(4096)), None, _TRACE_TIMEOUT_S)

    return AsyncTraceDispatcher(send, client.config.trace_topic, client.namespace, group, clock)
