"""One queue of a topic on a broker (org.apache.rocketmq.common.message.MessageQueue)."""

import msgspec

from rocketbroker.codec.remoting.java_types import Int


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False):
    """One queue, ordered by topic, broker and id; a map with queues as keys is written as ``{{...}:value}``."""

    topic: str
    broker_name: str
    queue_id: Int
