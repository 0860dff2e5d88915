"""What a producer is asked, held against what Apache RocketMQ 5.5.0 asked its own."""

import msgspec
import pytest

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.broker.transaction.transactional_message_check_listener import TransactionalMessageCheckListener
from rocketbroker.broker.transaction.transactional_message_util import checked_copy
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.custom_header import to_ext_fields
from rocketbroker.common.config import BrokerConfig
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.golden_frames import GoldenFrame, requests_of

STORE_HOST = host_bytes("127.0.0.1", 30911)
CHECKS = requests_of(39)


@pytest.fixture
def connection():
    return FakeConnection()


@pytest.fixture
def listener(tmp_path, connection):
    clock = FakeClock()
    producers = ProducerManager(clock, 120.0)
    producers.register("PG_Tx", ClientChannelInfo(connection, "one", "JAVA", 513, clock.monotonic()))
    config = BrokerConfig(broker_name="broker-a")
    topics = TopicConfigManager(tmp_path / "topics.json", config, clock)
    return TransactionalMessageCheckListener(producers, topics, "broker-a", STORE_HOST)


def half_of(shown: MessageExt) -> MessageExt:
    """The half message before it was put back, of which a recorded question shows the copy."""
    properties = shown.properties | {"WAIT": "true"}
    del properties["TRANSACTION_CHECK_TIMES"]
    return msgspec.structs.replace(
        shown,
        topic="RMQ_SYS_TRANS_HALF_TOPIC",
        queue_id=0,
        queue_offset=shown.queue_offset - 1,
        commit_log_offset=1,
        properties_bytes=encode_properties(properties),
        _properties=None,
    )


@pytest.mark.parametrize("frame", CHECKS, ids=lambda frame: frame.client)
def test_the_question_is_as_recorded(listener, connection, frame: GoldenFrame):
    recorded = frame.command()
    shown = decode_record(frame.body())
    half = half_of(shown)
    stored = PutMessageResult(PutMessageStatus.PUT_OK, shown.commit_log_offset, shown.queue_offset)
    assert listener.resolve_half_message(half, checked_copy(half, 1, STORE_HOST), stored)
    (asked,) = connection.sent
    assert (asked.code, asked.is_oneway) == (39, True)
    assert to_ext_fields(asked.header) == to_ext_fields(recorded.header)
    ours = decode_record(asked.body, check_crc=True)
    assert ours.properties == shown.properties
    assert msgspec.structs.replace(ours, properties_bytes=b"", _properties=None) == msgspec.structs.replace(
        shown, properties_bytes=b"", _properties=None
    )


def test_there_are_recorded_questions():
    assert len(CHECKS) == 2


def test_nobody_is_asked_if_nobody_is_connected(listener, connection):
    half = half_of(decode_record(CHECKS[0].body()))
    stored = PutMessageResult(PutMessageStatus.PUT_OK, 1, 1)
    connection.is_open = False
    assert not listener.resolve_half_message(half, checked_copy(half, 1, STORE_HOST), stored)
    assert connection.sent == []
