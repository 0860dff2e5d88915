"""Sends messages (org.apache.rocketmq.client.producer.DefaultMQProducer)."""

import asyncio
import os
import secrets
from collections.abc import Sequence

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.errors import ClientError, SendFailedError
from rocketbroker.client.group_member import GroupMember
from rocketbroker.client.message import MAX_MESSAGE_SIZE, Message, check_message
from rocketbroker.client.outgoing import Outgoing, prepare_batch, prepare_message
from rocketbroker.client.queue_selection import QueueSelector, RoundRobin
from rocketbroker.client.send_result import SendResult, SendStatus, send_result
from rocketbroker.codec.message.message_client_id_setter import UniqueIds
from rocketbroker.codec.message.message_id import ip_bytes
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.errors import BrokerResponseError, RemotingError

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


class Producer(GroupMember):
    """Sends messages to the brokers that have their topic.

    ``async with Producer("group", "127.0.0.1:9876") as producer: await producer.send(Message("topic", b"body"))``

    Args:
        group: the producer group.
        namesrv_addr: ``host:port`` of the name servers, joined by ``;``; not needed with ``client``.
        client: an instance to share with others, which its owner starts and stops.
        send_timeout_s: how long a send may take, its retries included.
        retry_times_when_send_failed: how often a failed send is tried again, on another broker where there is one.
        retry_another_broker_when_not_store_ok: whether a result other than SEND_OK counts as failed.
        compress_msg_body_over_howmuch: from how many bytes on a body is compressed.
        max_message_size: limit of a body, in bytes.
    """

    kind = "producer"

    def __init__(  # noqa: PLR0913 - the settings of DefaultMQProducer
        self,
        group: str,
        namesrv_addr: str = "",
        *,
        client: ClientInstance | None = None,
        send_timeout_s: float = 3.0,
        retry_times_when_send_failed: int = 2,
        retry_another_broker_when_not_store_ok: bool = False,
        compress_msg_body_over_howmuch: int = 4096,
        max_message_size: int = MAX_MESSAGE_SIZE,
        clock: Clock | None = None,
    ) -> None:
        super().__init__(group, namesrv_addr, client)
        self._send_timeout_s = send_timeout_s
        self._tries = 1 + retry_times_when_send_failed
        self._accepts_any_status = not retry_another_broker_when_not_store_ok
        self._compress_over = compress_msg_body_over_howmuch
        self._max_message_size = max_message_size
        self._clock = clock or SystemClock()
        self._new_unique_id = UniqueIds(
            ip_bytes(self._client.client_ip), os.getpid(), secrets.randbits(32), self._clock.time_ms
        ).create
        self._round_robin = RoundRobin()

    def _join(self) -> None:
        self._client.heartbeats.register_producer(self.group)

    async def _leave(self) -> None:
        await self._client.heartbeats.unregister_producer(self.group)

    async def fetch_publish_queues(self, topic: str) -> tuple[MessageQueue, ...]:
        """Return the queues that a topic can be written to, in order (fetchPublishMessageQueues)."""
        return (await self._client.routes.publish_route(topic)).publish_queues

    async def send(
        self, message: Message, queue: MessageQueue | QueueSelector | None = None, *, timeout_s: float | None = None
    ) -> SendResult:
        """Send a message and wait until the broker has it.

        Args:
            message: what to send.
            queue: where to; or what chooses one of the topic's queues; without it the queues take turns and a failed
                send is tried again, so that in rare cases a message is stored twice.
            timeout_s: instead of ``send_timeout_s``.

        Raises:
            InvalidMessageError: the message may not be sent like this.
            TopicRouteError: the topic does not exist and cannot be created.
            SendFailedError: all tries failed.
            BrokerResponseError: the broker refused in a way that no retry mends.
            RemotingError: the only try, to a given queue, failed.
        """
        self._check_started()
        check_message(message, self._max_message_size)
        outgoing = prepare_message(message, self._new_unique_id(), self._compress_over)
        if callable(queue):
            queue = queue(await self.fetch_publish_queues(message.topic), message)
        return await self._send(outgoing, queue, timeout_s or self._send_timeout_s)

    async def send_batch(
        self, messages: Sequence[Message], queue: MessageQueue | None = None, *, timeout_s: float | None = None
    ) -> SendResult:
        """Send messages of one topic to one queue in one request; arguments and errors as in ``send``."""
        self._check_started()
        for message in messages:
            check_message(message, self._max_message_size)
        outgoing = prepare_batch(messages, self._new_unique_id)
        return await self._send(outgoing, queue, timeout_s or self._send_timeout_s)

    async def send_oneway(self, message: Message, queue: MessageQueue | QueueSelector | None = None) -> None:
        """Send a message and do not wait: whether it arrives is unknown; errors as in ``send`` before it leaves."""
        self._check_started()
        check_message(message, self._max_message_size)
        outgoing = prepare_message(message, self._new_unique_id(), self._compress_over)
        queues = await self.fetch_publish_queues(message.topic)
        if queue is None:
            queue = self._round_robin.select(queues)
        elif callable(queue):
            queue = queue(queues, message)
        address = self._client.routes.broker_address(queue)
        self._client.heartbeats.greet_soon(address)
        await self._client.remoting.invoke_oneway(address, self._request(outgoing, queue, oneway=True))

    async def _send(self, outgoing: Outgoing, queue: MessageQueue | None, timeout_s: float) -> SendResult:
        queues = await self.fetch_publish_queues(outgoing.topic)
        if queue is not None:
            return await self._send_once(outgoing, queue, timeout_s)
        start = asyncio.get_running_loop().time()
        causes: list[Exception] = []
        brokers: list[str] = []
        while len(causes) < self._tries and (left := start + timeout_s - asyncio.get_running_loop().time()) > 0:
            queue = self._round_robin.select(queues, brokers[-1] if brokers else None)
            brokers.append(queue.broker_name)
            error = await self._try(outgoing, queue, left)
            if isinstance(error, SendResult):
                return error
            causes.append(error)
        cost = round((asyncio.get_running_loop().time() - start) * 1000)
        text = f"sent {len(causes)} times within {cost} ms, topic {outgoing.topic}, brokers {', '.join(brokers)}"
        raise SendFailedError(f"{text}: {causes[-1]}", causes) from causes[-1]

    async def _try(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> SendResult | Exception:
        """Try once; return an error that a retry may cure, raise others."""
        try:
            result = await self._send_once(outgoing, queue, timeout_s)
        except (RemotingError, ClientError) as error:
            await self._client.routes.refresh_topic(outgoing.topic)
            return error
        except BrokerResponseError as error:
            if error.code not in RETRY_RESPONSE_CODES:
                raise
            return error
        if result.send_status is SendStatus.SEND_OK or self._accepts_any_status:
            return result
        return ClientError(f"broker {queue.broker_name} stored the message as {result.send_status.name} only")

    async def _send_once(self, outgoing: Outgoing, queue: MessageQueue, timeout_s: float) -> SendResult:
        address = self._client.routes.broker_address(queue)
        self._client.heartbeats.greet_soon(address)
        answer = await self._client.remoting.invoke(address, self._request(outgoing, queue), timeout_s)
        return send_result(answer, queue, outgoing.unique_ids)

    def _request(self, outgoing: Outgoing, queue: MessageQueue, *, oneway: bool = False) -> Command:
        queue_nums = self._client.routes.default_topic_queue_nums
        return outgoing.request(self.group, queue, self._clock.time_ms(), queue_nums, oneway=oneway)
