"""Allocation of a topic's queues to a member of a group (org.apache.rocketmq.client.impl.consumer.RebalanceImpl)."""

from collections.abc import Sequence

from rocketbroker.client.client_instance import ClientInstance
from rocketbroker.client.rebalance.allocate_message_queue import AllocateMessageQueueStrategy, java_order
from rocketbroker.client.requests import check_success, client_request
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import GetConsumerListByGroupResponseBody, MessageModel
from rocketbroker.codec.remoting.headers.admin import GetConsumerListByGroupRequestHeader
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import RocketBrokerError


class RebalanceImpl:
    """Asks a broker for the members of the group, and lets the strategy choose the queues of this one.

    Args:
        client: connections and routes.
        group: the consumer group.
        strategy: the strategy; the same for all members.
        message_model: with BROADCASTING each member gets all queues.
    """

    def __init__(
        self, client: ClientInstance, group: str, strategy: AllocateMessageQueueStrategy, message_model: MessageModel
    ) -> None:
        self._client = client
        self._group = group
        self._strategy = strategy
        self._message_model = message_model

    async def allocate(self, topic: str) -> list[MessageQueue]:
        """Return this member's queues of a topic.

        Raises:
            TopicRouteError: the topic does not exist.
            AllocationError: the strategy cannot place a queue or member.
            RocketBrokerError: the name server or broker does not answer, or refuses.
        """
        queues = (await self._client.routes.route(topic)).subscribe_queues
        if self._message_model is MessageModel.BROADCASTING or not queues:
            return list(queues)
        client_id = self._client.client_id
        members = await self._members(queues)
        if client_id not in members:
            await self._client.heartbeats.send_to_all()
            members = await self._members(queues)
        if client_id not in members:
            return []
        return self._strategy.allocate(client_id, sorted(queues, key=_queue_order), sorted(members, key=java_order))

    async def _members(self, queues: Sequence[MessageQueue]) -> list[str]:
        """Ask the brokers of the topic in turn, until one answers."""
        header = GetConsumerListByGroupRequestHeader(self._group)
        failure: RocketBrokerError | None = None
        for queue in {queue.broker_name: queue for queue in queues}.values():
            command = client_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            try:
                answer = check_success(await self._client.invoke_at_broker(queue, command))
            except RocketBrokerError as error:
                failure = error
            else:
                return GetConsumerListByGroupResponseBody.decode(answer.body).consumer_id_list
        assert failure is not None
        raise failure


def _queue_order(queue: MessageQueue) -> tuple[bytes, int]:
    return java_order(queue.broker_name), queue.queue_id
