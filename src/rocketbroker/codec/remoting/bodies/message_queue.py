"""One queue of a topic on a broker (org.apache.rocketmq.common.message.MessageQueue)."""

import msgspec

from rocketbroker.codec.remoting.java_types import Int


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False):
    """Orders by topic, broker and queue; can be the key of a map, which fastjson writes as ``{{...}:value}``."""

    topic: str
    broker_name: str
    queue_id: Int
