"""Rights that each request needs, for the page of request codes: from the table by which the servers decide."""

from collections.abc import Iterator, Mapping
from typing import Final

from rocketbroker.auth.request_rights import ASKS, ROUTE_READS, RequestRights
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, QueryAssignmentRequestBody
from rocketbroker.codec.remoting.bodies.topic_config import CreateTopicListRequestBody, TopicConfig
from rocketbroker.codec.remoting.request_code import RequestCode as Code

#: What the handlers of the codes in ``ASKS`` ask for beside the row of the code.
ASKED: Final[Mapping[int, str]] = {
    Code.QUERY_MESSAGE: "messages of other topics are left out",
    Code.VIEW_MESSAGE_BY_ID: "Get on the topic of the message",
    Code.HEART_BEAT: "Pub on its topic for a producer that is to get a half message",
    Code.CONSUMER_SEND_MSG_BACK: "Sub on the topic of the message",
    Code.END_TRANSACTION: "Pub on the topic of the half message",
    Code.CONSUME_MESSAGE_DIRECTLY: "Sub on the topic of the message",
    Code.RESUME_CHECK_HALF_MESSAGE: "Update on the topic of the half message",
    Code.UPDATE_BROKER_CONFIG: "a Super user for `protectedMode` and white lists",
    Code.UPDATE_NAMESRV_CONFIG: "a Super user for `protectedMode` and white lists",
}

# Names of fields that are one letter in a header.
_LONG: Final = {"b": "topic"}


def body_of(code: int, topic: str, group: str) -> bytes:
    """Return a body that names a topic and a group, for a code that reads them there; an empty one for others."""
    queue, subscription = MessageQueue(topic, "broker-a", 0), SubscriptionData(topic)
    match code:
        case Code.HEART_BEAT:
            return HeartbeatData(
                "c", consumer_data_set=[ConsumerData(group, subscription_data_set=[subscription])]
            ).encode()
        case Code.LOCK_BATCH_MQ | Code.UNLOCK_BATCH_MQ:
            return LockBatchRequestBody(group, "c", mq_set=[queue]).encode()
        case Code.CHECK_CLIENT_CONFIG:
            return CheckClientRequestBody("c", group, subscription).encode()
        case Code.QUERY_ASSIGNMENT:
            return QueryAssignmentRequestBody(topic, group, "c", "AVG").encode()
        case Code.BATCH_ACK_MESSAGE:
            acks = [BatchAck(group, topic, "0", 0, 0, 0, 0, 1, b"\1")]
            return BatchAckMessageRequestBody("broker-a", acks).encode()
        case Code.UPDATE_AND_CREATE_TOPIC_LIST:
            return CreateTopicListRequestBody([TopicConfig(topic)]).encode()
        case _:
            return b""


class _Names(Mapping[str, str]):
    """Fields of a request that has all there are, each with its name as its value."""

    def __getitem__(self, name: str) -> str:
        return f"<{_LONG.get(name, name)}>"

    def __iter__(self) -> Iterator[str]:
        return iter(("any",))

    def __len__(self) -> int:
        return 1


def rights_text(code: int) -> str:
    """Return the rights of a request that fills all fields which name a resource."""
    found = RequestRights("<cluster>").of(code, _Names(), body_of(code, "<topic>", "<group>"))
    parts = [f"{str(right).partition(' on ')[0]} on `{right.resource}`" for right in found]
    if code in ROUTE_READS:
        parts = [f"none; with `authorizeRouteReads` {', '.join(parts)}"]
    if code in ASKS:
        parts.append(ASKED[code])
    return ", ".join(parts)
