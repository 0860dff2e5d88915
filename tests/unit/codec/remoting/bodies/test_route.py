import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting import fastjson
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


NAMES = st.text(st.characters(codec="utf-8"), max_size=5)
BROKERS = st.builds(
    BrokerData,
    cluster=NAMES,
    broker_name=NAMES,
    broker_addrs=st.dictionaries(st.integers(-1, 12), NAMES, max_size=3),
    zone_name=st.none() | NAMES,
    enable_acting_master=st.booleans(),
)
ROUTES = st.builds(
    TopicRouteData,
    order_topic_conf=st.none() | NAMES,
    queue_datas=st.lists(st.builds(QueueData, broker_name=NAMES, perm=st.integers(0, 7)), max_size=2),
    broker_datas=st.lists(BROKERS, max_size=2),
    filter_server_table=st.dictionaries(NAMES, st.lists(NAMES, max_size=2), max_size=2),
    topic_queue_mapping_by_broker=st.none()
    | st.dictionaries(NAMES, st.just({"topic": "T", "currIdMap": {10: 1, 9: 2}}), max_size=2),
)


@given(ROUTES)
def test_routes_are_encoded_like_all_other_bodies(route: TopicRouteData):
    plain = json.dumps(route_fields(route), sort_keys=True, separators=(",", ":"))

    assert route.encode() == fastjson.dumps(route)
    assert json.loads(route.encode_standard()) == json.loads(plain)


def route_fields(value: Any) -> Any:
    """Return a body as plain JSON values, without fields that are None."""
    if isinstance(value, msgspec.Struct):
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        fields = {name: route_fields(getattr(value, attribute)) for name, attribute in names}
        return {name: field for name, field in fields.items() if field is not None}
    if isinstance(value, dict):
        return {str(key): route_fields(item) for key, item in value.items()}
    return [route_fields(item) for item in value] if isinstance(value, list) else value


@given(st.dictionaries(NAMES, BROKERS, max_size=2))
def test_a_cluster_is_encoded_like_all_other_bodies(brokers: dict[str, BrokerData]):
    info = ClusterInfo(brokers, {"C": list(brokers)})
    assert info.encode() == fastjson.dumps(info)
