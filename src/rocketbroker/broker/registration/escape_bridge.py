"""Messages that an acting master sends to another master of its cluster (org.apache.rocketmq.broker.failover).

A slave stores no messages of its own: its log would differ from its master's.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from rocketbroker.codec.message.message_const import (
    BORNHOST_V6_FLAG,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_TRANSACTION_PREPARED,
    PROPERTY_WAIT_STORE_MSG_OK,
    STOREHOSTADDRESS_V6_FLAG,
    TRANSACTION_PREPARED_TYPE,
    TRANSACTION_ROLLBACK_TYPE,
    transaction_value,
)
from rocketbroker.codec.message.message_properties import get_property, remove_property
from rocketbroker.codec.message.topic_validator import AUTO_CREATE_TOPIC_KEY_TOPIC
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, TopicRouteData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_WRITE
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingError
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult, PutMessageStatus
from rocketbroker.transport.remoting_client import RemotingClient

_ROUTE_S: Final = 5.0
_MOST_ROUTES: Final = 1_024
_RETRY_S: Final = 1.0
# Longer than a master waits for its disk and its slaves, so that a slow one does not store the message again.
_SEND_TIMEOUT_S: Final = 15.0
_HOST_FLAGS: Final = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG
_DELAY: Final = PROPERTY_DELAY_TIME_LEVEL.encode()
_WAIT: Final = PROPERTY_WAIT_STORE_MSG_OK.encode()
_TRAN_MSG: Final = PROPERTY_TRANSACTION_PREPARED.encode()
# The message is stored: a retry would store it again.
_STORED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
    }
)


class _Queue(NamedTuple):
    """A queue of another master."""

    address: str
    queue_id: int


class EscapeBridge:
    """Sends messages to the other masters in turn.

    Args:
        config: cluster, name and id of this broker.
        client: sends them.
        route: returns the route of a topic (``TopicRouteInfoManager.fetch``).
    """

    def __init__(
        self, config: BrokerConfig, client: RemotingClient, route: Callable[[str], Awaitable[TopicRouteData]]
    ) -> None:
        self._config = config
        self._client = client
        self._route = route
        # Queues by topic, and the time until which they are used.
        self._routes: dict[str, tuple[float, list[_Queue]]] = {}
        self._next = 0

    async def put(self, message: MessageExtBrokerInner) -> PutMessageResult:
        """Send a message to its topic at another master; after a failure wait, so that the caller may retry at once."""
        try:
            queues = await self._queues(message.topic)
            self._next += 1
            await self._send(queues[self._next % len(queues)], message)
        except (RemotingError, CodecError) as error:
            self._routes.pop(message.topic, None)
            await asyncio.sleep(_RETRY_S)
            return PutMessageResult(PutMessageStatus.SLAVE, reason=f"no other master takes it: {error}")
        return PutMessageResult(PutMessageStatus.PUT_OK)

    async def _queues(self, topic: str) -> list[_Queue]:
        now = asyncio.get_running_loop().time()
        until, queues = self._routes.get(topic, (0.0, []))
        if now >= until:
            queues = _other_masters(await self._route(topic), self._config)
            if not queues:
                raise CodecError(f"none of the cluster has topic {topic} with write permission")
            if len(self._routes) >= _MOST_ROUTES:
                self._routes.clear()
            self._routes[topic] = now + _ROUTE_S, queues
        return queues

    async def _send(self, queue: _Queue, message: MessageExtBrokerInner) -> None:
        config = self._config
        group = get_property(message.properties, b"PGROUP") or b""
        # Without DELAY: the message is due. Without WAIT: it counts as delivered once answered, so the answer waits for
        # slaves. The properties must not grow: the other master leaves no room for those of copies.
        properties = remove_property(remove_property(message.properties, _DELAY), _WAIT)
        sys_flag = message.sys_flag & ~_HOST_FLAGS
        if transaction_value(sys_flag) != TRANSACTION_PREPARED_TYPE:
            # A committed message keeps TRAN_MSG, by which the other master would take it for a half message.
            properties = remove_property(properties, _TRAN_MSG)
            sys_flag &= ~TRANSACTION_ROLLBACK_TYPE
        header = SendMessageRequestHeaderV2(
            producer_group=group.decode("utf-8", "replace")
            or f"InnerProducerGroup_{config.broker_name}_{config.broker_id}",
            topic=message.topic,
            default_topic=AUTO_CREATE_TOPIC_KEY_TOPIC,
            default_topic_queue_nums=8,
            queue_id=queue.queue_id,
            sys_flag=sys_flag,
            born_timestamp=message.born_timestamp,
            flag=message.flag,
            properties=properties.decode("utf-8", "replace"),
            reconsume_times=message.reconsume_times,
            # This broker decided already that the message is no dead letter.
            max_reconsume_times=message.reconsume_times,
        )
        command = request(RequestCode.SEND_MESSAGE_V2, header, bytes(message.body))
        answer = await self._client.invoke(queue.address, command, _SEND_TIMEOUT_S)
        if answer.code not in _STORED:
            raise CodecError(f"{queue.address} answers {answer.code} {(answer.remark or '')[:200]}")


def _other_masters(route: TopicRouteData, config: BrokerConfig) -> list[_Queue]:
    cluster, own_name = config.broker_cluster_name, config.broker_name
    masters = {
        data.broker_name: data.broker_addrs.get(MASTER_ID) for data in route.broker_datas if data.cluster == cluster
    }
    return [
        _Queue(address, queue_id)
        for data in route.queue_datas
        if data.perm & PERM_WRITE and data.broker_name != own_name and (address := masters.get(data.broker_name))
        for queue_id in range(data.write_queue_nums)
    ]
