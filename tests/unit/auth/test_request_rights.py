"""Rights of each request code: the table is whole, and what the original leaves open is closed."""

from typing import Any

import pytest

from docs._ext.request_codes import served_codes
from rocketbroker.auth.authorization import Right
from rocketbroker.auth.policies import Action, Resource
from rocketbroker.auth.request_rights import _ROWS, DEPENDS_ON, MAX_NAMES, ROUTE_READS, RequestRights
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.pop import BatchAck, BatchAckMessageRequestBody, QueryAssignmentRequestBody
from rocketbroker.codec.remoting.bodies.topic_config import CreateTopicListRequestBody, TopicConfig
from rocketbroker.codec.remoting.header_template import names_on_wire
from rocketbroker.codec.remoting.headers.message import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketbroker.codec.remoting.remoting_command import CommandCustomHeader, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from rocketbroker.processor.support.send_runs import AlikeSends

OURS = RequestRights("C")
APACHE = RequestRights("C", as_apache=True)
AUTH_CODES = set(range(3001, 3011))
CONSUME = {"consumerGroup": "G", "topic": "T"}


def shown(rights: list[Right]) -> list[str]:
    return [str(right) for right in rights]


def test_each_served_code_has_a_row():
    assert served_codes() | AUTH_CODES <= _ROWS.keys()


def test_a_row_is_that_of_a_served_code():
    assert _ROWS.keys() - AUTH_CODES <= served_codes()
    assert _ROWS.keys() >= ROUTE_READS


class Noted(dict[str, str]):
    """Fields that note which of them are read."""

    def __init__(self, fields: dict[str, str]) -> None:
        super().__init__(fields)
        self.read: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)

    def __getitem__(self, name: str) -> str:
        raise AssertionError(f"{name} is read in another way")

    def __iter__(self) -> Any:
        raise AssertionError("all fields are read")


@pytest.mark.parametrize("code", DEPENDS_ON, ids=lambda code: RequestCode(code).name)
@pytest.mark.parametrize("topic", ["T", "%RETRY%G", "%RETRY%other", "%DLQ%G", ""])
@pytest.mark.parametrize("rights", [OURS, APACHE], ids=["ours", "apache"])
def test_rights_of_frequent_codes_depend_on_nothing_else(code: int, topic: str, rights: RequestRights):
    fields = Noted({**dict.fromkeys(DEPENDS_ON[code], topic), "consumerGroup": "G"})

    assert rights.of(code, fields, None) != []  # type: ignore[arg-type] # reading the body would fail

    assert fields.read <= set(DEPENDS_ON[code])


@pytest.mark.parametrize(
    ("code", "kind"),
    [(10, SendMessageRequestHeader), (310, SendMessageRequestHeaderV2), (320, SendMessageRequestHeaderV2)],
)
@pytest.mark.parametrize("topic", ["T", "%RETRY%G"])
def test_rights_of_sends_are_the_same_in_a_whole_run(code: int, kind: type[CommandCustomHeader], topic: str):
    """``SignedRuns`` asks for them once, by the fields that do not vary."""
    fields = {**(to_ext_fields(kind("P", topic, "TBW102", 4, 1, 0, 7, 0, "DELAY\x013")) or {}), "AccessKey": "joe"}
    names = names_on_wire(kind)
    constant = dict(fields)
    for field in AlikeSends.fields:
        del constant[names[field.name]]
    for rights in (OURS, APACHE):
        assert rights.of(code, constant) == rights.of(code, fields, b"body") != []


@pytest.mark.parametrize("code", sorted(_ROWS.keys()), ids=lambda code: RequestCode(code).name)
def test_a_request_without_anything_is_open_only_where_clients_need_that(code: int):
    """A producer's heartbeat has no group, and clients of 4.x end transactions without a topic."""
    body = b'{"clientID":"c","clientId":"c","consumerGroup":"G","topic":"T","topicConfigList":[],"acks":[]}'
    is_open = {34, 35, 37, 18, 200_151}
    assert (OURS.of(code, {}, body) == []) == (code in is_open)


@pytest.mark.parametrize(
    ("code", "fields", "rights"),
    [
        (10, {"topic": "T", "producerGroup": "P"}, ["Pub on Topic:T"]),
        (310, {"a": "P", "b": "T"}, ["Pub on Topic:T"]),
        (320, {"a": "P", "b": "%DLQ%G"}, ["Pub on Topic:%DLQ%G"]),
        (370, {"topic": "T"}, ["Pub on Topic:T"]),
        (37, {"topic": "T"}, ["Pub on Topic:T"]),
        (11, CONSUME, ["Sub on Topic:T", "Sub on Group:G"]),
        (12, {"topic": "T"}, ["Sub or Get on Topic:T"]),
        (14, CONSUME, ["Sub or Get on Topic:T", "Sub or Get on Group:G"]),
        (15, CONSUME, ["Sub or Update on Topic:T", "Sub or Update on Group:G"]),
        (17, {"topic": "T"}, ["Create on Topic:T"]),
        (30, {"topic": "T"}, ["Get on Topic:T"]),
        (35, {"consumerGroup": "G"}, ["Sub on Group:G"]),
        (35, {"producerGroup": "P", "consumerGroup": " "}, []),
        (36, {"group": "G"}, ["Sub on Group:G"]),
        (38, {"consumerGroup": "G"}, ["Sub or Get on Group:G"]),
        (103, {"clusterName": "other"}, ["Update on Cluster:other"]),
        (105, {"topic": "T"}, ["Pub or Sub or Get on Topic:T"]),
        (105, {"topic": "%RETRY%G"}, ["Sub or Get on Group:G"]),
        (204, {"topic": "T"}, ["Get on Cluster:C"]),
        (207, {"groupName": "G"}, ["Delete on Group:G"]),
        (208, {"consumerGroup": "G", "topicList": "T;;U"}, ["Get on Group:G", "Get on Topic:T", "Get on Topic:U"]),
        (308, {"filterGroups": "A,B", "compareGroup": "G"}, ["Get on Group:A", "Get on Group:B", "Get on Group:G"]),
        (3005, {}, ["Get on Cluster:C"]),
        (200_050, CONSUME, ["Sub on Group:G", "Sub on Topic:T"]),
    ],
)
def test_these_are_the_rights_of_the_original(code: int, fields: dict[str, str], rights: list[str]):
    assert shown(OURS.of(code, fields)) == shown(APACHE.of(code, fields)) == rights


def test_a_question_that_keeps_the_route_of_a_broker_needs_the_right_of_its_heartbeats():
    fields = {"clusterName": "other"}
    assert shown(APACHE.of(322, fields)) == ["Get on Cluster:other"]
    assert shown(OURS.of(322, fields)) == ["Get on Cluster:other", *shown(OURS.of(904, fields))]


@pytest.mark.parametrize(
    ("code", "fields", "ours"),
    [
        (25, {}, ["Update on Cluster:C"]),
        (26, {}, ["Get on Cluster:C"]),
        (200, {}, ["Update on Cluster:C"]),
        (206, {}, ["List on Cluster:C"]),
        (318, {}, ["Update on Cluster:C"]),
        (324, {"topic": "T"}, ["Pub on Topic:T", "Pub on Topic:C_REPLY_TOPIC"]),
        (325, {"b": "C_REPLY_TOPIC"}, ["Pub on Topic:C_REPLY_TOPIC"]),
        (361, CONSUME, ["Sub on Topic:T", "Sub on Group:G"]),
        (999_999, {}, ["Update on Cluster:C"]),
        (33, {"offset": "0"}, ["Get on Cluster:C"]),
    ],
)
def test_a_request_that_the_original_leaves_open_needs_a_right(code: int, fields: dict[str, str], ours: list[str]):
    assert shown(OURS.of(code, fields)) == ours
    assert APACHE.of(code, fields) == []


def test_a_clone_of_offsets_needs_the_group_they_are_read_from():
    fields = {"srcGroup": "A", "destGroup": "G", "topic": "T"}
    both = ["Update on Group:G", "Update on Topic:T"]
    assert shown(OURS.of(314, fields)) == [*both, "Get on Group:A"]
    assert shown(APACHE.of(314, fields)) == both


@pytest.mark.parametrize(
    ("topic", "ours", "apache"),
    [
        ("%RETRY%G", [], []),
        ("%RETRY%victim", ["Sub on Group:victim"], []),
        ("%RETRY%G+T", ["Sub on Topic:T"], []),
        ("%RETRY%G_T", ["Sub on Topic:T"], []),
        ("%RETRY%", ["Sub on Group:"], []),
    ],
)
def test_a_group_reads_no_retry_topic_of_another(topic: str, ours: list[str], apache: list[str]):
    for code in (11, 361):
        assert shown(OURS.of(code, {"consumerGroup": "G", "topic": topic})) == [*ours, "Sub on Group:G"]
    assert shown(APACHE.of(11, {"consumerGroup": "G", "topic": topic})) == [*apache, "Sub on Group:G"]
    # Of a pop, the original asks for a group of the name after the prefix.
    assert shown(OURS.of(200_051, {"consumerGroup": "G", "topic": topic})) == ["Sub on Group:G", *ours]
    after_prefix = topic.removeprefix("%RETRY%")
    wanted = dict.fromkeys(["Sub on Group:G", f"Sub on Group:{after_prefix}"])
    assert shown(APACHE.of(200_051, {"consumerGroup": "G", "topic": topic})) == list(wanted)


def test_a_query_of_a_retry_topic_needs_its_group():
    assert shown(OURS.of(12, {"topic": "%RETRY%G"})) == ["Sub or Get on Group:G"]
    assert shown(APACHE.of(12, {"topic": "%RETRY%G"})) == ["Sub or Get on Topic:%RETRY%G"]


def test_a_send_to_a_retry_topic_needs_its_group_not_the_one_claimed():
    for code, fields in ((310, {"a": "mine", "b": "%RETRY%victim"}), (10, {"group": "mine", "topic": "%RETRY%victim"})):
        assert shown(OURS.of(code, fields)) == shown(APACHE.of(code, fields)) == ["Sub on Group:victim"]


def test_a_heartbeat_needs_the_groups_and_topics_it_consumes():
    subscriptions = [SubscriptionData("T"), SubscriptionData("%RETRY%G"), SubscriptionData("%RETRY%H")]
    body = HeartbeatData("c", [ProducerData("P")], [ConsumerData("G", subscription_data_set=subscriptions)]).encode()
    assert shown(APACHE.of(34, {}, body)) == ["Sub on Group:G", "Sub on Topic:T"]
    assert shown(OURS.of(34, {}, memoryview(body))) == ["Sub on Group:G", "Sub on Topic:T", "Sub on Group:H"]


@pytest.mark.parametrize("code", [41, 42])
def test_a_lock_needs_the_group_and_each_topic_once(code: int):
    queues = [MessageQueue("T", "b", 0), MessageQueue("T", "b", 1), MessageQueue("%RETRY%G", "b", 0)]
    body = LockBatchRequestBody("G", "c", mq_set=queues).encode()
    assert shown(OURS.of(code, {}, body)) == ["Sub on Group:G", "Sub on Topic:T"]


@pytest.mark.parametrize(
    ("code", "body", "ours"),
    [
        (
            18,
            CreateTopicListRequestBody([TopicConfig("T"), TopicConfig("U")]),
            ["Create on Topic:T", "Create on Topic:U"],
        ),
        (46, CheckClientRequestBody("c", "G", SubscriptionData("T")), ["Sub on Group:G", "Sub on Topic:T"]),
        (400, QueryAssignmentRequestBody("T", "G", "c"), ["Sub on Group:G", "Sub on Topic:T"]),
        (
            200_151,
            BatchAckMessageRequestBody("b", [BatchAck("G", "T", "0", 1, 0, 0, 1, 1, b"\1")] * 2),
            ["Sub on Group:G", "Sub on Topic:T"],
        ),
    ],
)
def test_names_in_a_body_that_the_original_does_not_read_are_checked(code: int, body: Any, ours: list[str]):
    assert shown(OURS.of(code, {}, body.encode())) == ours
    assert APACHE.of(code, {}, body.encode()) == []


@pytest.mark.parametrize("code", [18, 34, 41, 42, 46, 400, 200_151])
def test_a_body_that_cannot_be_read_is_an_error(code: int):
    with pytest.raises(CodecError):
        OURS.of(code, {}, b"{")


def test_a_plain_client_needs_nothing_but_pub_and_sub():
    """Codes of a producer and of a consumer that continues; a new group also asks for offsets, with Get."""
    heartbeat = HeartbeatData(
        "c", [ProducerData("P")], [ConsumerData("G", subscription_data_set=[SubscriptionData("T")])]
    )
    asked = [
        *OURS.of(310, {"a": "P", "b": "T"}),
        *OURS.of(34, {}, heartbeat.encode()),
        *OURS.of(35, {"consumerGroup": "G", "producerGroup": "P"}),
        *OURS.of(46, {}, CheckClientRequestBody("c", "G", SubscriptionData("T")).encode()),
        *OURS.of(400, {}, QueryAssignmentRequestBody("T", "G", "c").encode()),
        *(right for code in (11, 14, 15, 361, 200_050, 200_051, 200_053) for right in OURS.of(code, CONSUME)),
        *OURS.of(36, {"group": "G"}),
        *OURS.of(38, {"consumerGroup": "G"}),
        *OURS.of(105, {"topic": "T"}),
    ]
    topic, group = Resource.topic("T"), Resource.group("G")
    held = {(topic, Action.PUB), (topic, Action.SUB), (group, Action.SUB)}
    assert [right for right in asked if not {(right.resource, action) for action in right.actions} & held] == []


def test_rights_are_found_one_by_one_and_each_once():
    """A user without the first right must not make the server look at the others."""
    names = ";".join(["T", "U"] * 50_000)
    assert shown(OURS.of(208, {"topicList": names})) == ["Get on Topic:T", "Get on Topic:U"]
    subscriptions = [SubscriptionData("T", "*"), SubscriptionData("U", "*")]
    heartbeat = HeartbeatData("c", [], [ConsumerData(group, subscription_data_set=subscriptions) for group in "GH"])
    wanted = ["Sub on Group:G", "Sub on Topic:T", "Sub on Topic:U", "Sub on Group:H"]
    assert shown(OURS.of(34, {}, heartbeat.encode())) == wanted
    many = OURS.each(208, {"topicList": ";".join(map(str, range(MAX_NAMES + 1)))})
    assert str(next(many)) == "Get on Topic:0"


def test_a_request_may_name_a_bounded_number():
    names = list(map(str, range(MAX_NAMES + 1)))
    assert len(OURS.of(208, {"topicList": ";".join(names[1:])})) == MAX_NAMES
    with pytest.raises(BrokerResponseError, match="more than 5,000 names") as caught:
        OURS.of(208, {"topicList": ";".join(names)})
    assert caught.value.code == ResponseCode.INVALID_PARAMETER


@pytest.mark.parametrize(("code", "most"), [(18, 4 * MAX_NAMES), (34, 4 * MAX_NAMES), (41, 65_536), (200_151, 20_000)])
def test_a_body_with_too_many_objects_is_not_decoded(code: int, most: int):
    with pytest.raises(CodecError):
        next(OURS.each(code, {}, b"{" * most))
    with pytest.raises(BrokerResponseError, match=f"the body has {most + 1:,} objects") as caught:
        next(OURS.each(code, {}, b"{" * (most + 1)))
    assert caught.value.code == ResponseCode.INVALID_PARAMETER
