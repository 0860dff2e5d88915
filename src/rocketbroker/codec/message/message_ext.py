"""Stored message, and a queue that holds messages (MessageExt, MessageQueue in org.apache.rocketmq.common.message)."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from rocketbroker.codec.java_types import Int
from rocketbroker.codec.message.message_const import PROPERTY_PRIORITY, priority_of
from rocketbroker.codec.message.message_id import create_message_id, host_text
from rocketbroker.codec.message.message_properties import decode_properties, get_property_text


class MessageExt(Struct, gc=False, kw_only=False):
    """One record of the CommitLog, as stored. Times are ms since 1970, hosts the raw 8 or 20 bytes.

    ``body`` is empty if it was not requested; ``body_length`` is the stored length either way. ``properties_bytes`` is
    the raw form; ``properties`` is decoded from it on first use.
    """

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    store_size: int
    body: bytes
    properties_bytes: bytes
    flag: int
    sys_flag: int
    body_crc: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body_length: int
    magic: int
    _properties: dict[str, str] | None = None

    @property
    def properties(self) -> dict[str, str]:
        """All properties. Changes to the dict do not change ``properties_bytes``."""
        if self._properties is None:
            self._properties = decode_properties(self.properties_bytes)
        return self._properties

    def get_property(self, name: str) -> str | None:
        """Return one property, without creating the dict."""
        if self._properties is not None:
            return self._properties.get(name)
        return get_property_text(self.properties_bytes, name)

    @property
    def tags(self) -> str | None:
        """``TAGS``, ``None`` if the message has none."""
        return self.get_property("TAGS")

    @property
    def keys(self) -> list[str]:
        """The keys in ``KEYS``."""
        return (self.get_property("KEYS") or "").split()

    @property
    def uniq_key(self) -> str | None:
        """``UNIQ_KEY``, the id that its producer assigned to the message."""
        return self.get_property("UNIQ_KEY")

    @property
    def priority(self) -> int | None:
        """Priority in a topic with ``message.type=PRIORITY``, ``None`` if the message has none."""
        return priority_of(self.get_property(PROPERTY_PRIORITY))

    @property
    def offset_msg_id(self) -> str:
        """Id of store host and CommitLog offset: 32 or 56 upper-case hex digits."""
        return create_message_id(self.store_host, self.commit_log_offset)

    @property
    def born_host_text(self) -> str:
        """``ip:port`` of the producer."""
        return host_text(self.born_host)

    @property
    def store_host_text(self) -> str:
        """``ip:port`` of the broker."""
        return host_text(self.store_host)


class MessageQueue(msgspec.Struct, frozen=True, order=True, rename="camel", gc=False):
    """One queue, ordered by topic, broker and id; a map with queues as keys is written as ``{{...}:value}``."""

    topic: str
    broker_name: str
    queue_id: Int
