"""Requests of each code, with few names in header and body, so that policies often match."""

import msgspec
from hypothesis import strategies as st

from docs._ext.request_codes import sections
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader

#: Header of each served code, ``None`` for raw fields.
HEADERS: dict[int, type[CommandCustomHeader] | None] = {
    **{code: route.header_type for _, _, routes in sections() for code, route in routes.items()},
}
NAMES = {
    "topic": ["T", "%RETRY%G", "%RETRY%H", "%DLQ%G"],
    "group": ["G", "H", "%RETRY%G"],
    "topicList": ["T", "T;U", "T;%RETRY%G", ";"],
    "filterGroups": ["G", "G,H", ","],
    "cluster": ["C", "D"],
}
#: Fields whose texts Apache's headers read as something else than a name.
VALUES = {"topicFilterType": "SINGLE_TAG", "i": "", "properties": "", "n": "b"}


def texts_of(header: type[CommandCustomHeader]) -> st.SearchStrategy[dict[str, str]]:
    """Fields of a header with few names; an optional one may be absent."""
    fields = {}
    for field in msgspec.structs.fields(header):
        name = field.encode_name
        kind = next((key for key in NAMES if key.lower() in name.lower()), "")
        kind = {"b": "topic", "a": "group"}.get(name, kind) if header.__name__.endswith("V2") else kind
        values = NAMES.get(name, NAMES.get(kind, []))
        value = st.just(VALUES[name]) if name in VALUES else st.sampled_from(values) if values else None
        if value is None:
            value = st.just("false" if field.type is bool or bool in getattr(field.type, "__args__", ()) else "1")
        fields[name] = value if field.required else st.none() | value
    return st.fixed_dictionaries(fields).map(
        lambda found: {key: text for key, text in found.items() if text is not None}
    )


def body_of(code: int) -> st.SearchStrategy[bytes]:
    topics, groups = st.sampled_from(NAMES["topic"]), st.sampled_from(NAMES["group"])
    if code == 34:
        subscriptions = st.lists(st.builds(SubscriptionData, topics), max_size=3)
        consumers = st.builds(
            lambda group, found: ConsumerData(
                group, ConsumeType.CONSUME_PASSIVELY, MessageModel.CLUSTERING, subscription_data_set=found
            ),
            groups,
            subscriptions,
        )
        return st.lists(consumers, max_size=1).map(
            lambda found: HeartbeatData("c", [ProducerData("P")], found).encode()
        )
    if code in {41, 42}:
        queues = st.lists(st.builds(lambda topic: MessageQueue(topic, "b", 0), topics), max_size=1)
        return st.builds(lambda group, found: LockBatchRequestBody(group, "c", mq_set=found).encode(), groups, queues)
    return st.just(b"")
