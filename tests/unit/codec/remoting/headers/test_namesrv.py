from rocketbroker.codec.remoting.headers.namesrv import (
    BrokerHeartbeatRequestHeader,
    GetRouteInfoRequestHeader,
    RegisterBrokerRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import from_ext_fields, to_ext_fields

BROKER = {
    "brokerName": "broker-a",
    "brokerAddr": "127.0.0.1:10911",
    "clusterName": "DefaultCluster",
    "haServerAddr": "127.0.0.1:10912",
    "brokerId": "0",
}


def test_an_old_broker_registers_without_crc_and_compression():
    header = from_ext_fields(BROKER, RegisterBrokerRequestHeader)

    assert (header.compressed, header.body_crc32, header.heartbeat_timeout_millis) == (False, 0, None)
    assert header.broker_id == 0


def test_the_two_spellings_of_the_timeout():
    registration = RegisterBrokerRequestHeader("b", "a", "c", "h", 0, heartbeat_timeout_millis=9)
    heartbeat = BrokerHeartbeatRequestHeader("c", "a", "b", heartbeat_timeout_mills=9)

    assert (to_ext_fields(registration) or {})["heartbeatTimeoutMillis"] == "9"
    assert (to_ext_fields(heartbeat) or {})["heartbeatTimeoutMills"] == "9"


def test_standard_json_is_asked_for_or_not():
    assert from_ext_fields({"topic": "T"}, GetRouteInfoRequestHeader).accept_standard_json_only is None
    fields = {"topic": "T", "acceptStandardJsonOnly": "true"}
    assert from_ext_fields(fields, GetRouteInfoRequestHeader).accept_standard_json_only is True
