"""Actions of the check of an open half message (Abstract- and DefaultTransactionalMessageCheckListener)."""

import msgspec

from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.message.real_place import real_place
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.transactional_message_util import QUEUE_ID, discarded_message
from rocketbroker.codec.message.message_const import PROPERTY_PRODUCER_GROUP, PROPERTY_WAIT_STORE_MSG_OK
from rocketbroker.codec.message.message_encoder import encode_message
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import create_message_id
from rocketbroker.codec.message.message_properties import replace_property
from rocketbroker.codec.message.topic_validator import RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting.headers.transaction import CheckTransactionStateRequestHeader
from rocketbroker.codec.remoting.perm_name import PERM_READ_WRITE
from rocketbroker.codec.remoting.remoting_command import Command, request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.store.commitlog.put_message import MessageExtBrokerInner, PutMessageResult

_WAIT = PROPERTY_WAIT_STORE_MSG_OK.encode()
_CHECK_MAX_QUEUES = 1


class TransactionalMessageCheckListener:
    """Asks producers for the outcome of transactions, and discards those without one.

    Args:
        producers: the connected producers.
        topic_configs: creates TRANS_CHECK_MAX_TIME_TOPIC.
        broker_name: name of the broker, for the producer.
        store_host: the broker's address as records hold it.
    """

    def __init__(
        self, producers: ProducerManager, topic_configs: TopicConfigManager, broker_name: str, store_host: bytes
    ) -> None:
        self._producers = producers
        self._topic_configs = topic_configs
        self._broker_name = broker_name
        self._store_host = store_host

    def resolve_half_message(self, half: MessageExt, copy: MessageExtBrokerInner, stored: PutMessageResult) -> bool:
        """Ask any member of the producer group; return false if none takes the request.

        Args:
            half: the half message.
            copy: the copy put back in its place, which the producer's answer will name.
            stored: where the copy was stored.
        """
        group = half.get_property(PROPERTY_PRODUCER_GROUP)
        connection = None if group is None else self._producers.available_channel(group)
        if connection is None:
            return False
        connection.send_oneway(self._check_request(half, copy, stored))
        return True

    def discard(self, half: MessageExt) -> MessageExtBrokerInner:
        """Return the copy of a discarded half message; the first one creates its topic."""
        self._topic_configs.create_in_send_message_back(
            RMQ_SYS_TRANS_CHECK_MAX_TIME_TOPIC, _CHECK_MAX_QUEUES, PERM_READ_WRITE
        )
        return discarded_message(half, self._store_host)

    def _check_request(self, half: MessageExt, copy: MessageExtBrokerInner, stored: PutMessageResult) -> Command:
        header = CheckTransactionStateRequestHeader(
            stored.queue_offset,
            stored.physical_offset,
            RMQ_SYS_TRANS_HALF_TOPIC,
            half.uniq_key,
            half.uniq_key,
            create_message_id(self._store_host, stored.physical_offset),
            self._broker_name,
        )
        topic, queue_id = real_place(half.properties_bytes) or (half.topic, QUEUE_ID)
        # The place to which it was sent, as the producer expects it in its listener.
        shown = msgspec.structs.replace(
            half,
            topic=topic,
            queue_id=queue_id,
            queue_offset=stored.queue_offset,
            commit_log_offset=stored.physical_offset,
            properties_bytes=replace_property(copy.properties, _WAIT, b"false"),
        )
        return request(RequestCode.CHECK_TRANSACTION_STATE, header, encode_message(shown), oneway=True)
