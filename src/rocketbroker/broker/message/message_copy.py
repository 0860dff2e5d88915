"""Copies of stored messages that are stored again: retries, delayed deliveries, dead letters."""

from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_sys_flag import BORNHOST_V6_FLAG, STOREHOSTADDRESS_V6_FLAG, host_flags
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner

_HOST_FLAGS = BORNHOST_V6_FLAG | STOREHOSTADDRESS_V6_FLAG


def copy_message(
    found: MessageExt, topic: str, queue_id: int, store_host: bytes, *, properties: bytes, reconsume_times: int
) -> MessageExtBrokerInner:
    """Return a message with the body, flags and birth data of ``found`` for another queue.

    ``store_host`` is this broker's address; its kind (IPv4, IPv6) may differ from when ``found`` was stored.
    """
    return MessageExtBrokerInner(
        topic=topic,
        queue_id=queue_id,
        body=found.body,
        properties=properties,
        flag=found.flag,
        sys_flag=found.sys_flag & ~_HOST_FLAGS | host_flags(found.born_host, store_host),
        born_timestamp=found.born_timestamp,
        born_host=found.born_host,
        reconsume_times=reconsume_times,
    )
