import zlib

import pytest

from rocketbroker.broker.broker_registration import BrokerRegistration
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.register_broker_body import RegisterBrokerBody
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.custom_header import to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from tests.support.fakes import FakeClock
from tests.support.golden_frames import requests_of


@pytest.fixture
def topics(tmp_path):
    return TopicConfigManager(tmp_path / "topics.json", BrokerConfig(broker_ip1="127.0.0.1"), FakeClock())


def make(topics, **settings):
    config = BrokerConfig(
        broker_name="broker-a", broker_ip1="127.0.0.1", broker_ip2="127.0.0.1", listen_port=30911, **settings
    )
    return BrokerRegistration(config, MessageStoreConfig(ha_listen_port=30912), topics)


def recorded_master(code):
    return [frame for frame in requests_of(code) if frame.client == "broker-master"]


def test_recorded_registrations_are_made_from_their_topics(topics):
    compared = 0
    for frame in recorded_master(RequestCode.REGISTER_BROKER):
        theirs = frame.command().header
        wrapper = RegisterBrokerBody.decode(frame.body()).topic_config_serialize_wrapper
        if theirs["enableActingMaster"] == "true" or wrapper.topic_queue_mapping_info_map:
            continue
        topics.topics, topics.data_version = wrapper.topic_config_table, wrapper.data_version
        ours = make(topics).whole()
        # Only the version of the table of static topics, which there are none of, is a time of its own.
        version = b'"mappingDataVersion":{"counter":0,"stateVersion":0,"timestamp":%d}'
        body = bytes(ours.body).replace(
            version % topics.data_version.timestamp, version % wrapper.mapping_data_version.timestamp
        )
        assert body == frame.body()
        assert zlib.crc32(body) & 0x7FFFFFFF == int(theirs.pop("bodyCrc32"))
        fields = to_ext_fields(ours.header) or {}
        assert fields.pop("bodyCrc32") == str(zlib.crc32(ours.body) & 0x7FFFFFFF)
        assert fields == theirs
        compared += 1
    assert compared > 10


def test_recorded_unregistration(topics):
    for frame in recorded_master(RequestCode.UNREGISTER_BROKER):
        assert to_ext_fields(make(topics).unregister().header) == frame.command().header


def test_whole_body_is_made_anew_only_after_a_change(topics):
    registration = make(topics)
    first = registration.whole().body
    assert registration.whole().body is first
    topics.update(TopicConfig("T"))
    assert registration.whole().body is not first
    assert b'"T"' in registration.whole().body


def test_increment_has_only_what_changed(topics):
    body = RegisterBrokerBody.decode(make(topics, broker_permission=2).increment([TopicConfig("T", perm=6)]).body)
    assert body.topic_config_serialize_wrapper.topic_config_table == {"T": TopicConfig("T", perm=2)}


def test_query_data_version(topics):
    command = make(topics).query_data_version()
    assert command.body == topics.data_version.encode()
    assert to_ext_fields(command.header) == {
        "brokerName": "broker-a",
        "brokerAddr": "127.0.0.1:30911",
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }
