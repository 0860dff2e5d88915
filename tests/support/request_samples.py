"""A request of each code that a server answers: well-formed, and about one topic and one group."""

from typing import Any, Final

import msgspec

from docs._ext.request_rights import body_of
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.request_code import RequestCode as Code

# Names of fields that stand for the topic, and those that stand for a group.
_TOPICS: Final = frozenset({"topic", "b", "topicList"})
_GROUPS: Final = frozenset(
    {"consumerGroup", "producerGroup", "group", "groupName", "a"}
    | {"srcGroup", "destGroup", "compareGroup", "filterGroups"}
)
_TEXTS: Final[dict[str, str]] = {
    "clusterName": "DefaultCluster", "cluster": "DefaultCluster", "brokerName": "broker-a", "namespace": "N",
    "key": "k", "value": "v", "brokerAddr": "127.0.0.1:1", "haServerAddr": "127.0.0.1:2", "clientId": "c",
    "clientID": "c",
    "username": "somebody", "subject": "User:somebody", "defaultTopic": "TBW102", "c": "TBW102", "subscription": "*",
    "topicFilterType": "SINGLE_TAG", "expType": "TAG", "exp": "*", "statsName": "TOPIC_PUT_NUMS", "indexType": "K",
    "boundaryType": "LOWER", "expressionType": "TAG",
}  # fmt: skip
_BODIES: Final[dict[int, bytes]] = {
    Code.UPDATE_BROKER_CONFIG: b"traceOn=false",
    Code.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true",
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"Made"}',
    Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: b'{"groupConfigList":[{"groupName":"Made"}]}',
    Code.SET_MESSAGE_REQUEST_MODE: b'{"topic":"Orders","consumerGroup":"billing","mode":"PULL"}',
    Code.REGISTER_BROKER: b'{"topicConfigSerializeWrapper":{"topicConfigTable":{}},"filterServerList":[]}',
    Code.AUTH_CREATE_USER: b'{"password":"some-secret"}',
    Code.AUTH_UPDATE_USER: b'{"userStatus":"disable"}',
    Code.AUTH_CREATE_ACL: b'{"policies":[]}',
    Code.AUTH_UPDATE_ACL: b'{"policies":[]}',
    Code.SEND_MESSAGE: b"body",
    Code.SEND_MESSAGE_V2: b"body",
    Code.SEND_REPLY_MESSAGE: b"body",
    Code.SEND_REPLY_MESSAGE_V2: b"body",
}


def sample(route: Route, topic: str, group: str) -> tuple[dict[str, str], bytes]:
    """Return fields and body of a request that fills all fields which name something.

    A code whose header is typed needs nothing here; another one has its body in ``body_of`` or above.
    """
    fields = {} if route.header_type is None else _fields(route.header_type, topic, group)
    body = _BODIES.get(route.code) or body_of(route.code, topic, group)
    return fields, body


def _fields(header_type: type[msgspec.Struct], topic: str, group: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for field in msgspec.structs.fields(header_type):
        name = field.encode_name
        if name in _TOPICS:
            found[name] = topic
        elif name in _GROUPS:
            found[name] = group
        elif name in _TEXTS:
            found[name] = _TEXTS[name]
        elif field.required:
            found[name] = _scalar(field.type)
    return found


def _scalar(kind: Any) -> str:
    """Return a value of a type: 0 for numbers, false, or a letter."""
    if kind is bool:
        return "false"
    return "x" if kind is str else "0"
