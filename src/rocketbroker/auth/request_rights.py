"""Rights that each request code needs (DefaultAuthorizationContextBuilder, RocketMQAction and RocketMQResource).

``_ROWS`` is the one table: a row for each code that a server answers. Apache's broker leaves some requests open to
every user by omission: codes without an annotation, fields that may be left out, and names that it does not compare.
Here

- a code that Apache's broker leaves open needs a right: that of its topics and groups where clients send it, otherwise
  Get, List or Update on the cluster;
- a code without a row needs Update on the cluster;
- a request that names no resource needs its actions on the cluster;
- a retry topic counts as that of the group it belongs to, not of the group that the request claims.

``as_apache`` restores the original for all of them. A right that the original asks for is never left out otherwise, but
for retry topics of POP: an acknowledgement of ``%RETRY%group_topic`` needs Group:group and Topic:topic, where the
original asks for Group:group_topic.

A request with many names must not hold the event loop, whoever sends it. So rights are found one by one, and none after
the first that a user lacks; equal ones are decided once; and a body with too many objects is not decoded.

A name in a row is one that the handler of the code reads too. A code that looks up a message by something else, such as
its offset, is in ``ASKS``: its handler asks the user's ``Requester`` about the topic of what it has found.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from rocketbroker.auth.authorization import Right
from rocketbroker.auth.policies import Action, Resource, ResourceType
from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.pop_info import normal_topic
from rocketbroker.codec.message.topic_validator import REPLY_TOPIC_POSTFIX, RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
)
from rocketbroker.codec.remoting.bodies.pop import BatchAckMessageRequestBody, QueryAssignmentRequestBody
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.bodies.topic_config import CreateTopicListRequestBody
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

#: Reads of routes, which a name server leaves open unless it is asked to check them.
ROUTE_READS: Final = frozenset({Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO})

#: Codes whose handlers ask about what they find, keep the user to ask later, or have settings for Super users.
ASKS: Final = frozenset(
    {
        Code.QUERY_MESSAGE,
        Code.VIEW_MESSAGE_BY_ID,
        Code.HEART_BEAT,
        Code.CONSUMER_SEND_MSG_BACK,
        Code.END_TRANSACTION,
        Code.CONSUME_MESSAGE_DIRECTLY,
        Code.RESUME_CHECK_HALF_MESSAGE,
        Code.UPDATE_BROKER_CONFIG,
        Code.UPDATE_NAMESRV_CONFIG,
    }
)

#: Fields on which alone the rights of frequent codes depend, so that a decision for their values can be kept.
DEPENDS_ON: Final[Mapping[int, tuple[str, ...]]] = {
    Code.SEND_MESSAGE: ("topic",),
    Code.SEND_MESSAGE_V2: ("b",),
    Code.SEND_BATCH_MESSAGE: ("b",),
    Code.PULL_MESSAGE: ("topic", "consumerGroup"),
    Code.QUERY_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    Code.UPDATE_CONSUMER_OFFSET: ("topic", "consumerGroup"),
    Code.POP_MESSAGE: ("topic", "consumerGroup"),
    Code.ACK_MESSAGE: ("topic", "consumerGroup"),
}

#: Topics and groups that a request may name, at up to 10 µs each.
MAX_NAMES: Final = 5_000
# Objects in a body, at up to 5 µs each: one with a name may hold others.
_MOST_OBJECTS: Final = 4 * MAX_NAMES
# The highest maxQueuesPerLockRequest. Queues of one topic are one name.
_MOST_QUEUES: Final = 65_536
# Values of a body that is not plain JSON, as the handlers of these codes allow.
_MOST_VALUES: Final = 5_000

T = TypeVar("T", bound=RemotingSerializable)

Actions: TypeAlias = tuple[Action, ...]
_PUB: Final = (Action.PUB,)
_SUB: Final = (Action.SUB,)
_GET: Final = (Action.GET,)
_LIST: Final = (Action.LIST,)
_CREATE: Final = (Action.CREATE,)
_UPDATE: Final = (Action.UPDATE,)
_DELETE: Final = (Action.DELETE,)


def topic_rights(name: str, actions: Actions, group: str = "", *, as_apache: bool = False) -> Iterator[Right]:
    """Yield the right for a topic, if any.

    Args:
        name: the topic; a retry topic counts as its group.
        actions: of the right.
        group: the group that sends the request, if the caller asks for a right on it, too.
        as_apache: let a group read the retry topics of all others.
    """
    if not name.startswith(RETRY_GROUP_TOPIC_PREFIX):
        yield Right(Resource.topic(name), actions)
    elif not group:
        yield Right(Resource.group(name), actions)
    elif not as_apache and name != RETRY_GROUP_TOPIC_PREFIX + group:
        # The group is the client's claim: without this, any group could read the retry topic of any other.
        plain = normal_topic(name, group)
        yield Right(Resource.topic(plain) if plain != name else Resource.group(name), actions)


def member_rights(consumer: ConsumerData, *, as_apache: bool = False) -> Iterator[Right]:
    """Yield the rights for one group of a heartbeat, and for the topics that it subscribes to there."""
    yield Right(Resource.group(consumer.group_name), _SUB)
    for subscription in consumer.subscription_data_set:
        yield from topic_rights(subscription.topic, _SUB, consumer.group_name, as_apache=as_apache)


class Asked(NamedTuple):
    """A request, as far as its rights depend on it."""

    fields: Mapping[str, str]
    body: ReadableBuffer
    cluster: str
    as_apache: bool
    on_read: Callable[[RemotingSerializable], None] | None = None

    def topic(self, name: str, actions: Actions, group: str = "") -> Iterator[Right]:
        """Return the right for a topic, if any; see ``topic_rights``."""
        return topic_rights(name, actions, group, as_apache=self.as_apache)

    def on_cluster(self, actions: Actions) -> Right:
        """Return a right on the cluster of the server."""
        return Right(Resource.cluster(self.cluster), actions)

    def read(self, kind: type[T], most_objects: int = _MOST_OBJECTS) -> T:
        """Decode the body.

        Raises:
            BrokerResponseError: INVALID_PARAMETER; it has too many objects.
            CodecError: It is not JSON, or a field is missing or of the wrong type.
        """
        body = bytes(self.body)
        # Braces within strings are counted as well.
        objects = body.count(b"{")
        if objects > most_objects:
            raise _too_many(f"the body has {objects:,} objects, above the limit of {most_objects:,}")
        decoded = kind.decode(body, most_values=_MOST_VALUES)
        if self.on_read is not None:
            self.on_read(decoded)
        return decoded


def _too_many(found: str) -> BrokerResponseError:
    remark = f"{found}, where rights are checked; use several requests, or send it as a Super user"
    return BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)


Rights: TypeAlias = Callable[[Asked], Iterable[Right]]


class _Field(NamedTuple):
    """Field with a name, or with several that ``splitter`` separates."""

    name: str
    type: ResourceType
    splitter: str = ""


def _topic(name: str = "topic", splitter: str = "") -> _Field:
    return _Field(name, ResourceType.TOPIC, splitter)


def _group(name: str = "consumerGroup", splitter: str = "") -> _Field:
    return _Field(name, ResourceType.GROUP, splitter)


def _cluster(actions: Actions, field: str = "") -> Rights:
    """Return the rights of a code that concerns a cluster: the one in ``field``, else that of the server."""

    def rights(asked: Asked) -> Iterable[Right]:
        name = asked.fields.get(field) if field else None
        return [asked.on_cluster(actions) if name is None else Right(Resource.cluster(name), actions)]

    return rights


def _fields(actions: Actions, *fields: _Field) -> Rights:
    """Return the rights of a code whose fields name the resources; any of them may be absent."""

    def rights(asked: Asked) -> Iterator[Right]:
        found = False
        groups = [field.name for field in fields if field.type is ResourceType.GROUP and not field.splitter]
        # With one group, its own retry topics are covered by the right on it.
        group = asked.fields.get(groups[0], "") if len(groups) == 1 and not asked.as_apache else ""
        for field in fields:
            value = asked.fields.get(field.name)
            if value is None:
                continue
            for name in dict.fromkeys(filter(None, value.split(field.splitter))) if field.splitter else (value,):
                if field.type is ResourceType.GROUP:
                    found = True
                    yield Right(Resource(ResourceType.GROUP, name), actions)
                    continue
                for right in asked.topic(name, actions, group):
                    found = True
                    yield right
        if not found and not asked.as_apache:
            yield asked.on_cluster(actions)

    return rights


def _open(strict: Rights) -> Rights:
    """Return the rights of a code that Apache's broker leaves open."""
    return lambda asked: () if asked.as_apache else strict(asked)


def _send(topic: str) -> Rights:
    """Return the rights of a send: Pub on the topic, or Sub on the group whose retry topic it is."""

    def rights(asked: Asked) -> Iterable[Right]:
        name = asked.fields.get(topic, "")
        if name.startswith(RETRY_GROUP_TOPIC_PREFIX):
            return [Right(Resource.group(name), _SUB)]
        return [Right(Resource.topic(name), _PUB)]

    return rights


def _reply(topic: str) -> Rights:
    """Return the rights of a reply, which is pushed to whichever client it names: also Pub on the topic of replies."""
    send = _send(topic)

    def rights(asked: Asked) -> Iterable[Right]:
        pushes = Right(Resource.topic(asked.cluster + REPLY_TOPIC_POSTFIX), _PUB)
        return dict.fromkeys([*send(asked), pushes])

    return _open(rights)


def _clone_offsets(asked: Asked) -> Iterable[Right]:
    into = _fields(_UPDATE, _group("destGroup"), _topic())(asked)
    source = asked.fields.get("srcGroup")
    return into if source is None or asked.as_apache else [*into, Right(Resource.group(source), _GET)]


def _consume(actions: Actions) -> Rights:
    """Return the rights of a code that reads or moves the progress of a group on a topic."""

    def rights(asked: Asked) -> Iterable[Right]:
        group = asked.fields.get("consumerGroup", "")
        topic = asked.fields.get("topic", "")
        return [*asked.topic(topic, actions, group), Right(Resource.group(group), actions)]

    return rights


def _query(asked: Asked) -> Iterable[Right]:
    topic = asked.fields.get("topic", "")
    return [Right(Resource.topic(topic), _SUB_GET)] if asked.as_apache else asked.topic(topic, _SUB_GET)


def _heartbeat(asked: Asked) -> Iterable[Right]:
    heartbeat = asked.read(HeartbeatData)
    for consumer in heartbeat.consumer_data_set:
        yield from member_rights(consumer, as_apache=asked.as_apache)


def _lock(asked: Asked) -> Iterable[Right]:
    body = asked.read(LockBatchRequestBody, _MOST_QUEUES)
    yield Right(Resource.group(body.consumer_group), _SUB)
    for topic in dict.fromkeys(queue.topic for queue in body.mq_set):
        yield from asked.topic(topic, _SUB, body.consumer_group)


def _unregister(asked: Asked) -> Iterable[Right]:
    group = asked.fields.get("consumerGroup", "")
    return [Right(Resource.group(group), _SUB)] if group.strip() else []


def _end_transaction(asked: Asked) -> Iterable[Right]:
    # Clients of 4.x do not name the topic; the handler asks about that of the half message.
    topic = asked.fields.get("topic", "")
    return [Right(Resource.topic(topic), _PUB)] if topic.strip() else []


def _create_topics(asked: Asked) -> Iterable[Right]:
    for config in asked.read(CreateTopicListRequestBody).topic_config_list:
        yield Right(Resource.topic(config.topic_name), _CREATE)


def _check_client(asked: Asked) -> Iterable[Right]:
    body = asked.read(CheckClientRequestBody)
    yield Right(Resource.group(body.group), _SUB)
    if body.subscription_data is not None:
        yield from asked.topic(body.subscription_data.topic, _SUB, body.group)


def _assignment(asked: Asked) -> Iterable[Right]:
    body = asked.read(QueryAssignmentRequestBody)
    return [Right(Resource.group(body.consumer_group), _SUB), *asked.topic(body.topic, _SUB, body.consumer_group)]


def _batch_ack(asked: Asked) -> Iterable[Right]:
    body = asked.read(BatchAckMessageRequestBody)
    for group, topic in dict.fromkeys((ack.consumer_group, ack.topic) for ack in body.acks):
        yield Right(Resource.group(group), _SUB)
        yield from asked.topic(topic, _SUB, group)


def _route(asked: Asked) -> Iterable[Right]:
    topic = asked.fields.get("topic", "")
    if topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
        return [Right(Resource.group(topic), (Action.SUB, Action.GET))]
    return [Right(Resource.topic(topic), (Action.PUB, Action.SUB, Action.GET))]


def _query_version(asked: Asked) -> Iterable[Right]:
    # The answer shows a version, and the request keeps the broker's route, as a heartbeat does.
    read, renew = _cluster(_GET, "clusterName"), _cluster(_UPDATE, "clusterName")
    return read(asked) if asked.as_apache else [*read(asked), *renew(asked)]


_SUB_GET: Final = (Action.SUB, Action.GET)

_ROWS: Final[Mapping[int, Rights]] = {
    # Messages
    Code.SEND_MESSAGE: _send("topic"),
    Code.SEND_MESSAGE_V2: _send("b"),
    Code.SEND_BATCH_MESSAGE: _send("b"),
    Code.SEND_REPLY_MESSAGE: _reply("topic"),
    Code.SEND_REPLY_MESSAGE_V2: _reply("b"),
    Code.RECALL_MESSAGE: lambda asked: [Right(Resource.topic(asked.fields.get("topic", "")), _PUB)],
    Code.END_TRANSACTION: _end_transaction,
    Code.RESUME_CHECK_HALF_MESSAGE: _fields(_UPDATE, _topic()),
    Code.PULL_MESSAGE: _consume(_SUB),
    Code.LITE_PULL_MESSAGE: _open(_consume(_SUB)),
    Code.QUERY_MESSAGE: _query,
    Code.VIEW_MESSAGE_BY_ID: _fields(_GET, _topic()),
    Code.CONSUMER_SEND_MSG_BACK: lambda asked: [Right(Resource.group(asked.fields.get("group", "")), _SUB)],
    Code.POP_MESSAGE: _fields(_SUB, _group(), _topic()),
    Code.ACK_MESSAGE: _fields(_SUB, _group(), _topic()),
    Code.BATCH_ACK_MESSAGE: _open(_batch_ack),
    Code.PEEK_MESSAGE: _fields(_SUB, _topic(), _group()),
    Code.CHANGE_MESSAGE_INVISIBLETIME: _fields(_SUB, _group(), _topic()),
    Code.NOTIFICATION: _fields(_SUB, _group(), _topic()),
    Code.POLLING_INFO: _fields(_GET, _group(), _topic()),
    Code.POP_ROLLBACK: _open(_cluster(_UPDATE)),
    # Clients and groups
    Code.HEART_BEAT: _heartbeat,
    Code.UNREGISTER_CLIENT: _unregister,
    Code.CHECK_CLIENT_CONFIG: _open(_check_client),
    Code.GET_CONSUMER_LIST_BY_GROUP: lambda asked: [
        Right(Resource.group(asked.fields.get("consumerGroup", "")), _SUB_GET)
    ],
    Code.LOCK_BATCH_MQ: _lock,
    Code.UNLOCK_BATCH_MQ: _lock,
    Code.QUERY_ASSIGNMENT: _open(_assignment),
    Code.SET_MESSAGE_REQUEST_MODE: _open(_cluster(_UPDATE)),
    Code.GET_ALL_MESSAGE_REQUEST_MODE: _open(_cluster(_GET)),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _open(_cluster(_UPDATE)),
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _open(_cluster(_UPDATE)),
    Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: _open(_cluster(_LIST)),
    Code.GET_SUBSCRIPTIONGROUP_CONFIG: _fields(_GET, _group("group")),
    Code.DELETE_SUBSCRIPTIONGROUP: _fields(_DELETE, _group("groupName")),
    Code.UPDATE_AND_GET_GROUP_FORBIDDEN: _fields(_UPDATE, _group("group"), _topic()),
    Code.GET_CONSUMER_CONNECTION_LIST: _fields(_GET, _group()),
    Code.GET_PRODUCER_CONNECTION_LIST: _cluster(_GET),
    Code.GET_ALL_PRODUCER_INFO: _cluster(_GET),
    Code.GET_CONSUMER_RUNNING_INFO: _fields(_GET, _group()),
    Code.CONSUME_MESSAGE_DIRECTLY: _fields(_SUB, _group(), _topic()),
    Code.QUERY_TOPICS_BY_CONSUMER: _fields(_GET, _group("group")),
    Code.QUERY_SUBSCRIPTION_BY_CONSUMER: _fields(_GET, _group("group"), _topic()),
    Code.QUERY_TOPIC_CONSUME_BY_WHO: _fields(_GET, _topic()),
    # Offsets
    Code.QUERY_CONSUMER_OFFSET: _consume(_SUB_GET),
    Code.UPDATE_CONSUMER_OFFSET: _consume((Action.SUB, Action.UPDATE)),
    Code.SEARCH_OFFSET_BY_TIMESTAMP: _fields(_GET, _topic()),
    Code.GET_MAX_OFFSET: _fields(_GET, _topic()),
    Code.GET_MIN_OFFSET: _fields(_GET, _topic()),
    Code.GET_EARLIEST_MSG_STORETIME: _fields(_GET, _topic()),
    Code.GET_CONSUME_STATS: _fields(_GET, _group(), _topic(), _topic("topicList", ";")),
    Code.INVOKE_BROKER_TO_RESET_OFFSET: _fields(_UPDATE, _group("group"), _topic()),
    Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: _fields(_GET, _topic(), _group("group")),
    Code.QUERY_CONSUME_TIME_SPAN: _fields(_GET, _topic(), _group("group")),
    Code.QUERY_CORRECTION_OFFSET: _fields(_GET, _group("filterGroups", ","), _group("compareGroup"), _topic()),
    Code.CLONE_GROUP_OFFSET: _clone_offsets,
    Code.QUERY_CONSUME_QUEUE: _fields(_GET, _topic(), _group()),
    # Topics
    Code.UPDATE_AND_CREATE_TOPIC: _fields(_CREATE, _topic()),
    Code.UPDATE_AND_CREATE_TOPIC_LIST: _open(_create_topics),
    Code.GET_ALL_TOPIC_CONFIG: _open(_cluster(_GET)),
    Code.GET_TOPIC_CONFIG: _fields(_GET, _topic()),
    Code.GET_TOPIC_STATS_INFO: _fields(_GET, _topic()),
    Code.DELETE_TOPIC_IN_BROKER: _fields(_DELETE, _topic()),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: _open(_cluster(_LIST)),
    # The broker
    Code.UPDATE_BROKER_CONFIG: _open(_cluster(_UPDATE)),
    Code.GET_BROKER_CONFIG: _open(_cluster(_GET)),
    Code.GET_BROKER_RUNTIME_INFO: _open(_cluster(_GET)),
    Code.VIEW_BROKER_STATS_DATA: _cluster(_GET),
    Code.GET_BROKER_CONSUME_STATS: _cluster(_GET),
    Code.CLEAN_EXPIRED_CONSUMEQUEUE: _open(_cluster(_UPDATE)),
    Code.CLEAN_UNUSED_TOPIC: _open(_cluster(_UPDATE)),
    Code.DELETE_EXPIRED_COMMITLOG: _open(_cluster(_UPDATE)),
    # Between brokers
    Code.GET_ALL_CONSUMER_OFFSET: _open(_cluster(_GET)),
    Code.GET_ALL_DELAY_OFFSET: _open(_cluster(_GET)),
    Code.GET_TIMER_CHECK_POINT: _open(_cluster(_GET)),
    Code.GET_TIMER_METRICS: _open(_cluster(_GET)),
    Code.NOTIFY_MIN_BROKER_ID_CHANGE: _cluster(_UPDATE),
    Code.EXCHANGE_BROKER_HA_INFO: _cluster(_UPDATE),
    Code.GET_BROKER_HA_STATUS: _open(_cluster(_GET)),
    # Users and policies
    Code.AUTH_CREATE_USER: _cluster(_UPDATE),
    Code.AUTH_UPDATE_USER: _cluster(_UPDATE),
    Code.AUTH_DELETE_USER: _cluster(_UPDATE),
    Code.AUTH_GET_USER: _cluster(_GET),
    Code.AUTH_LIST_USER: _cluster(_GET),
    Code.AUTH_CREATE_ACL: _cluster(_UPDATE),
    Code.AUTH_UPDATE_ACL: _cluster(_UPDATE),
    Code.AUTH_DELETE_ACL: _cluster(_UPDATE),
    Code.AUTH_GET_ACL: _cluster(_GET),
    Code.AUTH_LIST_ACL: _cluster(_GET),
    # The name server, which checks nothing in the original; its own annotations are kept
    Code.PUT_KV_CONFIG: _cluster(_UPDATE),
    Code.GET_KV_CONFIG: _cluster(_GET),
    Code.DELETE_KV_CONFIG: _cluster(_UPDATE),
    Code.GET_KVLIST_BY_NAMESPACE: _cluster(_GET),
    Code.REGISTER_BROKER: _cluster(_UPDATE, "clusterName"),
    Code.UNREGISTER_BROKER: _cluster(_UPDATE, "clusterName"),
    Code.BROKER_HEARTBEAT: _cluster(_UPDATE, "clusterName"),
    Code.QUERY_DATA_VERSION: _query_version,
    Code.GET_BROKER_MEMBER_GROUP: _cluster(_GET, "clusterName"),
    Code.GET_ROUTEINFO_BY_TOPIC: _route,
    Code.GET_BROKER_CLUSTER_INFO: _open(_cluster(_GET)),
    Code.WIPE_WRITE_PERM_OF_BROKER: _cluster(_UPDATE),
    Code.ADD_WRITE_PERM_OF_BROKER: _cluster(_UPDATE),
    Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: _open(_cluster(_LIST)),
    Code.GET_TOPICS_BY_CLUSTER: _open(_cluster(_LIST)),
    Code.GET_SYSTEM_TOPIC_LIST_FROM_NS: _open(_cluster(_LIST)),
    Code.GET_UNIT_TOPIC_LIST: _open(_cluster(_LIST)),
    Code.GET_HAS_UNIT_SUB_TOPIC_LIST: _open(_cluster(_LIST)),
    Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: _open(_cluster(_LIST)),
    Code.DELETE_TOPIC_IN_NAMESRV: _cluster(_UPDATE, "clusterName"),
    Code.REGISTER_TOPIC_IN_NAMESRV: _cluster(_UPDATE),
    Code.UPDATE_NAMESRV_CONFIG: _open(_cluster(_UPDATE)),
    Code.GET_NAMESRV_CONFIG: _open(_cluster(_GET)),
}

_UNKNOWN: Final = _open(_cluster(_UPDATE))


class RequestRights:
    """The table for one server.

    Args:
        cluster: name of its cluster (brokerClusterName).
        as_apache: leave open what Apache's broker leaves open.

    Attributes:
        system_cluster: cluster on which entries for many topics need a right to cover topics of the broker, too; empty
            if they need none.
    """

    def __init__(self, cluster: str, *, as_apache: bool = False) -> None:
        self.cluster: Final = cluster
        self.as_apache: Final = as_apache
        self.system_cluster: Final = "" if as_apache else cluster

    def each(
        self,
        code: int,
        fields: Mapping[str, str] | None,
        body: ReadableBuffer = b"",
        on_read: Callable[[RemotingSerializable], None] | None = None,
    ) -> Iterator[Right]:
        """Yield the rights that a request needs, each once; it needs all of them.

        Args:
            code: its request code.
            fields: texts of its ``extFields``.
            body: its body, read for the codes that name topics or groups there.
            on_read: called with the decoded body.

        Raises:
            BrokerResponseError: INVALID_PARAMETER; it names more than ``MAX_NAMES``, or its body is not read.
            CodecError: The body cannot be read.
        """
        found: set[Right] = set()
        asked = Asked(fields or {}, body, self.cluster, self.as_apache, on_read)
        for number, right in enumerate(_ROWS.get(code, _UNKNOWN)(asked)):
            if number == MAX_NAMES:
                raise _too_many(f"more than {MAX_NAMES:,} names of topics and groups are too many")
            if right not in found:
                found.add(right)
                yield right

    def of(self, code: int, fields: Mapping[str, str] | None, body: ReadableBuffer = b"") -> list[Right]:
        """Return all rights that a request needs; see ``each``."""
        return list(self.each(code, fields, body))
