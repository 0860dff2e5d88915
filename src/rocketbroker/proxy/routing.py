"""Routes of topics, queues for sends and pops, and assignments (RouteActivity, MessageQueueSelector)."""

import itertools
from typing import Final

from rocketbroker.codec.message import topic_message_type
from rocketbroker.codec.message.message_ext import MessageQueue as Queue
from rocketbroker.codec.message.pop_info import ALL_QUEUES
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.remoting.bodies.route import MASTER_ID, QueueData
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ, PERM_WRITE
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.queue_allocation import java_order
from rocketbroker.proxy.call_context import OK, CallContext, StatusError, check_group, check_topic
from rocketbroker.proxy.message_conversion import MESSAGE_TYPES
from rocketbroker.proxy.messaging_pb2 import (
    Address,
    Assignment,
    Broker,
    Code,
    Endpoints,
    MessageQueue,
    MessageType,
    Permission,
    QueryAssignmentRequest,
    QueryAssignmentResponse,
    QueryRouteRequest,
    QueryRouteResponse,
)
from rocketbroker.proxy.service_manager import ServiceManager

_PERMISSIONS: Final = {
    0: Permission.NONE,
    PERM_READ: Permission.READ,
    PERM_WRITE: Permission.WRITE,
    PERM_READ | PERM_WRITE: Permission.READ_WRITE,
}
_LONG: Final = (1 << 64) - 1
_MOST_ENDPOINTS: Final = 512


class Routing:
    """Answers of routes, and choice of queues.

    Args:
        brokers: brokers and routes.
        endpoints: address of this front.
        config: what routes have for each broker: that address, or the one that a client asked at.

    Attributes:
        follows_clients: routes have the address that a client asked at, if it says so.
    """

    def __init__(self, brokers: ServiceManager, endpoints: Endpoints, config: ProxyConfig) -> None:
        self._brokers = brokers
        self._endpoints = endpoints
        self.follows_clients = brokers.is_cluster and not config.local_serve_addr
        self._use_port = config.use_endpoint_port_from_request
        self._turn = itertools.count()

    async def query_route(self, query: QueryRouteRequest, context: CallContext) -> QueryRouteResponse:
        """Return the queues of a topic, each at this front."""
        topic, endpoints = check_topic(query.topic), self._address_for(query.endpoints)
        types = _message_types((await self._brokers.topic_config(topic)).attributes.get("message.type", ""))
        queues = [
            MessageQueue(
                topic=query.topic,
                id=queue_id,
                permission=permission,
                broker=Broker(name=data.broker_name, id=MASTER_ID, endpoints=endpoints),
                accept_message_types=types,
            )
            for data in await self._at_masters(topic)
            for queue_id, permission in enumerate(_permissions(data))
        ]
        return QueryRouteResponse(status=OK, message_queues=queues)

    async def query_assignment(self, query: QueryAssignmentRequest, context: CallContext) -> QueryAssignmentResponse:
        """Return one entry for each broker, as clients of a group share all queues; each queue if it is ordered."""
        topic, group = check_topic(query.topic), check_group(query.group)
        endpoints = self._address_for(query.endpoints)
        is_fifo = (await self._brokers.subscription_group_config(group)).consume_message_orderly
        queues = [
            MessageQueue(
                topic=query.topic,
                id=queue_id,
                permission=_PERMISSIONS[data.perm & (PERM_READ | PERM_WRITE)],
                broker=Broker(name=data.broker_name, id=MASTER_ID, endpoints=endpoints),
            )
            for data in await self._at_masters(topic)
            if data.perm & PERM_READ and data.read_queue_nums
            for queue_id in (range(data.read_queue_nums) if is_fifo else [ALL_QUEUES])
        ]
        if not queues:
            raise _not_readable(topic)
        return QueryAssignmentResponse(status=OK, assignments=[Assignment(message_queue=queue) for queue in queues])

    async def readable_broker(self, topic: str, wanted: str) -> str:
        """Return the broker to pop from: ``wanted`` if it has the topic, else one in turn.

        Raises:
            StatusError: FORBIDDEN, if no broker may be read.
            BrokerResponseError: TOPIC_NOT_EXIST, or another answer.
        """
        names = [data.broker_name for data in await self._at_masters(topic) if data.perm & PERM_READ]
        if wanted in names:
            return wanted
        if not names:
            raise _not_readable(topic)
        return names[next(self._turn) % len(names)]

    async def writable_queue(self, topic: str, message_group: str) -> Queue:
        """Return the queue for a send: the one of its message group, else one in turn, of another broker each time.

        Raises:
            StatusError: FORBIDDEN, if no queue may be written.
            BrokerResponseError: TOPIC_NOT_EXIST, or another answer.
        """
        found = [data for data in await self._at_masters(topic) if data.perm & PERM_WRITE and data.write_queue_nums]
        if not found:
            remark = (
                f"no writable queue: no broker of topic {topic} may be written; run mqadmin updateTopicPerm -t {topic} "
                "-p 6, or start its brokers"
            )
            raise StatusError(Code.FORBIDDEN, remark)
        if not message_group:
            turn = next(self._turn)
            data = found[turn % len(found)]
            return Queue(topic, data.broker_name, turn // len(found) % data.write_queue_nums)
        number = consistent_hash(java_hash(message_group), sum(data.write_queue_nums for data in found))
        for data in sorted(found, key=lambda each: java_order(each.broker_name)):
            if number < data.write_queue_nums:
                break
            number -= data.write_queue_nums
        return Queue(topic, data.broker_name, number)

    async def _at_masters(self, topic: str) -> list[QueueData]:
        """Return the queues of a topic whose broker has a master."""
        route = await self._brokers.topic_route(topic)
        masters = {data.broker_name for data in route.broker_datas if MASTER_ID in data.broker_addrs}
        return [data for data in route.queue_datas if data.broker_name in masters]

    def _address_for(self, asked: Endpoints) -> Endpoints:
        """Return the address that a client finds in its route.

        In a cluster that is the host that it asked at, if it says so: a load balancer may stand before several fronts.

        Raises:
            StatusError: ILLEGAL_ACCESS_POINT, as each queue of the route would repeat it.
        """
        if not (self.follows_clients and asked.addresses and self._endpoints.addresses):
            return self._endpoints
        if (size := asked.ByteSize()) > _MOST_ENDPOINTS:
            remark = f"endpoints of {size:,} bytes exceed the limit of {_MOST_ENDPOINTS:,}; name fewer addresses"
            raise StatusError(Code.ILLEGAL_ACCESS_POINT, remark)
        port = self._endpoints.addresses[0].port
        addresses = [Address(host=each.host, port=each.port if self._use_port else port) for each in asked.addresses]
        return Endpoints(scheme=asked.scheme, addresses=addresses)


def consistent_hash(key: int, buckets: int) -> int:
    """Return the bucket of a key as Guava's ``Hashing.consistentHash``: few keys move when a bucket is added.

    Messages of a group stay in order only if all proxies choose the same queue, those of Apache too.
    """
    state, candidate = key & _LONG, 0
    while True:
        state = (2862933555777941757 * state + 1) & _LONG
        # Java adds in 32 bits, and the largest number becomes the least.
        number = (state >> 33) + 1
        following = int((candidate + 1) / ((number if number < 1 << 31 else -number) / (1 << 31)))
        if not 0 <= following < buckets:
            return candidate
        candidate = following


def _not_readable(topic: str) -> StatusError:
    remark = (
        f"no readable queue: no broker of topic {topic} may be read; run mqadmin updateTopicPerm -t {topic} -p 6, or "
        "start its brokers"
    )
    return StatusError(Code.FORBIDDEN, remark)


def _message_types(name: str) -> list[MessageType]:
    """Return what a topic accepts by its attribute ``message.type``; NORMAL without one."""
    if name == topic_message_type.MIXED:
        return [found for each, found in MESSAGE_TYPES.items() if each != topic_message_type.PRIORITY]
    return [MESSAGE_TYPES.get(name or "NORMAL", MessageType.MESSAGE_TYPE_UNSPECIFIED)]


def _permissions(data: QueueData) -> list[Permission]:
    """Return a permission for each queue: those that are only read, only written, both, or none, in this order."""
    reads = data.read_queue_nums if data.perm & PERM_READ else 0
    writes = data.write_queue_nums if data.perm & PERM_WRITE else 0
    both = min(reads, writes)
    if not data.perm & (PERM_READ | PERM_WRITE):
        return [Permission.NONE] * max(1, data.read_queue_nums, data.write_queue_nums)
    return [Permission.READ] * (reads - both) + [Permission.WRITE] * (writes - both) + [Permission.READ_WRITE] * both
