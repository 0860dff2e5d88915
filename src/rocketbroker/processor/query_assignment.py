"""Assignment of queues to consumers by the broker, and their delivery mode (QueryAssignmentProcessor)."""

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.registration.topic_route_info_manager import TopicRouteInfoManager
from rocketbroker.broker.topic.message_request_mode_manager import MessageRequestModeManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.pop_info import ALL_QUEUES
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import MessageModel
from rocketbroker.codec.remoting.bodies.pop import (
    MessageQueueAssignment,
    MessageRequestMode,
    QueryAssignmentRequestBody,
    QueryAssignmentResponseBody,
    SetMessageRequestModeRequestBody,
)
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, shown
from rocketbroker.common.queue_allocation import allocate_averagely, allocate_averagely_by_circle, java_order
from rocketbroker.processor.support.long_answers import AnswerEncoder
from rocketbroker.processor.support.request_checks import (
    check_known_group,
    check_known_topic,
    existing_topic,
    read_body,
)
from rocketbroker.processor.support.request_family import NO_CHANGES, answers
from rocketbroker.processor.support.table_change import answer_when_settled

_STRATEGIES: Final = {"AVG": allocate_averagely, "AVG_BY_CIRCLE": allocate_averagely_by_circle}


class _Group(NamedTuple):
    """Sorted queues and members, and the name of the strategy."""

    queues: Sequence[MessageQueue]
    client_ids: Sequence[str]
    strategy: str

    def share_of(self, client_id: str) -> list[MessageQueue]:
        return _STRATEGIES[self.strategy](client_id, self.queues, self.client_ids)


@dataclass(frozen=True, slots=True)
class QueryAssignmentProcessor:
    """Requests about the queues and the mode of a group's clients."""

    config: BrokerConfig
    modes: MessageRequestModeManager
    routes: TopicRouteInfoManager
    consumers: ConsumerManager
    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    encoder: AnswerEncoder

    @answers(RequestCode.QUERY_ASSIGNMENT, audience=Audience.CLIENT)
    def query_assignment(self, _connection: Connection, command: Command) -> Awaitable[Command]:
        """Answer the queues of a client, each with its mode; no list where it has to keep what it has.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a name is illegal; SYSTEM_ERROR if the body is.
        """
        body = read_body(command.body, QueryAssignmentRequestBody)
        check_known_topic(body.topic)
        check_known_group(body.consumer_group)
        return self._assign(body)

    async def _assign(self, wanted: QueryAssignmentRequestBody) -> Command:
        mode = self.modes.mode_of(wanted.topic, wanted.consumer_group)
        queues = await self.routes.subscribe_queues(wanted.topic)
        if not queues:
            return _unassigned(f"the name servers know no queue of topic {wanted.topic} that can be read")
        if wanted.message_model is MessageModel.CLUSTERING and self.config.server_load_balancer_enable:
            if wanted.strategy_name not in _STRATEGIES:
                name = shown(wanted.strategy_name or "")
                return _unassigned(f"unsupported strategy {name!r}; use {' or '.join(_STRATEGIES)}")
            members = self.consumers.group_info(wanted.consumer_group)
            if members is None:
                return _unassigned(f"group {wanted.consumer_group} has no client; send a heartbeat first")
            ordered = sorted(queues, key=lambda queue: (java_order(queue.broker_name), queue.queue_id))
            group = _Group(ordered, sorted(members.client_ids(), key=java_order), wanted.strategy_name)
            queues = _allocated(wanted.client_id, group, mode)
        body = QueryAssignmentResponseBody([MessageQueueAssignment(queue, mode.mode) for queue in queues])
        return response(body=await self.encoder.encode(body, len(queues)))

    @answers(RequestCode.SET_MESSAGE_REQUEST_MODE, at_slave=NO_CHANGES)
    def set_message_request_mode(self, _connection: Connection, command: Command) -> Command | Awaitable[Command]:
        """Set the delivery mode of a group for a topic, whose clients learn of it by QUERY_ASSIGNMENT.

        Raises:
            BrokerResponseError: NO_PERMISSION for a retry topic, TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST,
                INVALID_PARAMETER if a name is illegal; SYSTEM_ERROR if the body is, or the disk failed.
        """
        body = read_body(command.body, SetMessageRequestModeRequestBody)
        topic, group = body.topic or "", body.consumer_group or ""
        if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            raise BrokerResponseError(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        existing_topic(self.topics, topic)
        check_known_group(group)
        if self.groups.find(group) is None:
            raise BrokerResponseError(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group {group} does not exist"
            )
        written = self.modes.update(topic, group, body)
        return answer_when_settled([written, self.groups.settled(group)], response())


def _unassigned(reason: str) -> Command:
    return response(remark=reason, body=QueryAssignmentResponseBody().encode())


def _allocated(client_id: str, group: _Group, mode: SetMessageRequestModeRequestBody) -> list[MessageQueue]:
    """Return the queues of a client; with POP several clients may share a queue.

    With POP a client takes all queues of all brokers unless the mode limits the sharing. Then it takes its own queues
    and those of the next members, or one queue if there are more members than queues.
    """
    share, members = mode.pop_share_queue_num, group.client_ids
    if mode.mode is MessageRequestMode.POP and not 0 < share < len(members) - 1:
        names = dict.fromkeys(queue.broker_name for queue in group.queues)
        return [MessageQueue(group.queues[0].topic, name, ALL_QUEUES) for name in names]
    if client_id not in members:
        return []
    if mode.mode is MessageRequestMode.PULL:
        return group.share_of(client_id)
    index = members.index(client_id)
    if len(members) > len(group.queues):
        return [group.queues[index % len(group.queues)]]
    sharers = (members[(index + step) % len(members)] for step in range(share + 1))
    return [queue for sharer in sharers for queue in group.share_of(sharer)]
