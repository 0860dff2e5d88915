import json

import pytest

from rocketbroker.codec.remoting.bodies.route import (
    V4_9_4,
    BrokerData,
    BrokerMemberGroup,
    ClusterInfo,
    GetBrokerMemberGroupResponseBody,
    QueueData,
    TopicRouteData,
    takes_standard_json,
)

ROUTE = TopicRouteData(
    queue_datas=[QueueData("broker-a", 4, 4, 6)],
    broker_datas=[BrokerData("C", "broker-a", {1: "127.0.0.1:2", 0: "127.0.0.1:1"})],
)
PLAIN = (
    b'{"brokerDatas":[{"brokerAddrs":{1:"127.0.0.1:2",0:"127.0.0.1:1"},"brokerName":"broker-a","cluster":"C",'
    b'"enableActingMaster":false}],"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,'
    b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
)
STANDARD = PLAIN.replace(b'{1:"127.0.0.1:2",0:"127.0.0.1:1"}', b'{"0":"127.0.0.1:1","1":"127.0.0.1:2"}')


@pytest.mark.parametrize(
    ("version", "accepts", "expected"),
    [
        (V4_9_4, None, STANDARD),
        (513, False, STANDARD),
        (V4_9_4 - 1, None, PLAIN),
        (V4_9_4 - 1, False, PLAIN),
        (63, True, STANDARD),
    ],
)
def test_broker_ids_are_quoted_for_clients_that_support_or_request_it(
    version: int, accepts: bool | None, expected: bytes
):
    standard = takes_standard_json(version, accepts)
    assert (ROUTE.encode_standard() if standard else ROUTE.encode()) == expected


def test_both_forms_are_read():
    assert TopicRouteData.decode(PLAIN) == TopicRouteData.decode(STANDARD) == ROUTE


def test_there_is_no_blank_for_clients_that_cut_the_addresses_out_by_hand():
    assert b" " not in ROUTE.encode()
    assert b" " not in ROUTE.encode_standard()


def test_the_standard_form_is_ascii_with_sorted_maps():
    route = TopicRouteData(
        "broker-ü:4", broker_datas=[BrokerData("\U0001f680")], filter_server_table={"b": [], "a": []}
    )
    encoded = route.encode_standard()

    assert encoded.isascii()
    assert json.loads(encoded)["orderTopicConf"] == "broker-ü:4"
    assert TopicRouteData.decode(encoded) == route
    assert encoded.index(b'"a":[]') < encoded.index(b'"b":[]')


def test_a_static_topic_has_its_mapping_in_both_forms():
    route = TopicRouteData(topic_queue_mapping_by_broker={"broker-a": {"currIdMap": {0: 1}, "topic": "T"}})

    assert b'"currIdMap":{0:1}' in route.encode()
    assert b'"currIdMap":{"0":1}' in route.encode_standard()


def test_cluster_info_never_quotes_broker_ids():
    info = ClusterInfo({"broker-a": BrokerData("C", "broker-a", {0: "127.0.0.1:1"})}, {"C": ["broker-a"]})

    assert b'"brokerAddrs":{0:"127.0.0.1:1"}' in info.encode()
    assert ClusterInfo.decode(info.encode()) == info


def test_a_zone_is_written_when_there_is_one():
    assert b'"zoneName":"z1"' in BrokerData("C", "b", zone_name="z1").encode()


def test_an_unknown_group_has_no_members():
    assert GetBrokerMemberGroupResponseBody().encode() == b"{}"
    assert GetBrokerMemberGroupResponseBody(BrokerMemberGroup("C", "b", {0: "a"})).encode() == (
        b'{"brokerMemberGroup":{"brokerAddrs":{0:"a"},"brokerName":"b","cluster":"C"}}'
    )
