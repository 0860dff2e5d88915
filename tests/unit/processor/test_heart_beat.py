import json

import pytest

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.requester import Requester
from rocketbroker.codec.remoting.bodies.client import HeartbeatData, MessageModel
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config.current_settings import apply_updates
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.heard_topics import HeardTopics
from tests.support.processors import heart_beat_processor


@pytest.fixture
def processor(parts):
    return heart_beat_processor(parts)


def heartbeat(*groups, producers=(), client="c1", **fields):
    consumers = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [{"topic": topic, "subString": "*", "subVersion": 1} for topic in topics],
        }
        for group, topics in groups
    ]
    body = {
        "clientID": client,
        "consumerDataSet": consumers,
        "producerDataSet": [{"groupName": name} for name in producers],
        **fields,
    }
    return request(RequestCode.HEART_BEAT, body=json.dumps(body).encode())


def test_registers_producers_and_consumers(processor, parts):
    changes = HeardTopics()
    parts.topic_configs.on_change(changes)
    answer = processor.heart_beat(FakeConnection(), heartbeat(("g", ["T"]), producers=["p"]))
    assert answer.header == {"IS_SUPPORT_HEART_BEAT_V2": True, "IS_SUB_CHANGE": True}
    assert parts.consumers.group_info("g").client_ids() == ["c1"]
    assert parts.producers.find_channel("c1") is not None
    assert parts.subscription_groups.contains("g")
    # Registered at once: clients look for their retry topic every 30 s only.
    assert changes == [TopicConfig("%RETRY%g", 1, 1, 6)]


def test_cpp_client_sends_ordinals(processor, parts):
    body = (
        b'{"clientID":"c","consumerDataSet":[{"consumeFromWhere":0,"consumeType":1,"groupName":"g","messageModel":1,'
        b'"subscriptionDataSet":[{"codeSet":[0],"subString":"TagA","subVersion":"17","topic":"T"}]}],'
        b'"producerDataSet":[]}\n'
    )
    processor.heart_beat(FakeConnection(), request(RequestCode.HEART_BEAT, body=body))
    info = parts.consumers.group_info("g")
    assert info.message_model is MessageModel.CLUSTERING
    assert info.find_subscription_data("T").sub_version == 17
    assert info.find_subscription_data("T").tag_codes == {2598919}


def test_retry_topic_follows_the_group(processor, parts):
    group = parts.subscription_groups.find("g")
    group.retry_queue_nums = 3
    parts.topic_configs.update(TopicConfig("Ordered", 4, 4, order=True))
    processor.heart_beat(FakeConnection(), heartbeat(("g", ["Ordered"])))
    assert parts.topic_configs.select("%RETRY%g") == TopicConfig("%RETRY%g", 3, 3, 6, order=True)


def test_unknown_group_without_auto_create_is_left_out(processor, parts, tmp_path):
    parts.subscription_groups._config = parts.config.model_copy(update={"auto_create_subscription_group": False})
    processor.heart_beat(FakeConnection(), heartbeat(("g", ["T"]), producers=["p"]))
    assert parts.consumers.groups == {}
    assert "p" in parts.producers.groups


@pytest.mark.parametrize("name", ["../../etc/passwd", "a b", "a@b", "\u00e4"])
def test_illegal_names_are_rejected_and_legal_groups_registered(processor, parts, name):
    for groups, producers in (([(name, [])], []), ([("h", [name])], []), ([], [name])):
        with pytest.raises(BrokerResponseError, match="illegal characters") as error:
            processor.heart_beat(FakeConnection(), heartbeat(("g", ["T"]), *groups, producers=["p", *producers]))
        assert error.value.code == ResponseCode.INVALID_PARAMETER
    assert list(parts.consumers.groups) == ["g"]
    assert list(parts.producers.groups) == ["p"]
    assert not any(name in topic for topic in parts.topic_configs.topics)


@pytest.mark.parametrize("body", [b"", b"{}", b"[]", b'{"clientID":"c","consumerDataSet":[{}]}', b'{"clientID":7}'])
def test_body_that_is_no_heartbeat(processor, parts, body):
    with pytest.raises(BrokerResponseError, match="the body of the request") as error:
        processor.heart_beat(FakeConnection(), request(RequestCode.HEART_BEAT, body=body))
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert (parts.consumers.groups, parts.producers.groups) == ({}, {})


def test_filters_on_properties_are_registered_and_end_with_the_last_client(processor, parts):
    apply_updates([parts.config], {"enablePropertyFilter": "true"})
    subscription = {"topic": "T", "subString": "a > 1", "subVersion": 7, "expressionType": "SQL92"}
    group = {"groupName": "g", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    body = {
        "clientID": "c",
        "producerDataSet": [],
        "consumerDataSet": [group | {"subscriptionDataSet": [subscription]}],
    }
    connection = FakeConnection()
    processor.heart_beat(connection, request(RequestCode.HEART_BEAT, body=json.dumps(body).encode()))
    found = parts.consumer_filters.get("T", "g")
    assert (found.client_version, found.data.expression, found.data.dead) == (7, "a > 1", False)
    without = heartbeat(("g", []), client="c", heartbeatFingerprint=1, withoutSub=True)
    processor.heart_beat(connection, without)
    assert not found.data.dead, "a heartbeat without subscriptions says nothing of them"
    parts.consumers.close_connection(connection)
    assert found.data.dead


def sub_change(answer):
    return answer.header["IS_SUB_CHANGE"]


def test_heartbeat_v2(processor, parts):
    connection = FakeConnection()
    first = heartbeat(("g", ["T"]), heartbeatFingerprint=11)
    assert not sub_change(processor.heart_beat(connection, first))
    without = heartbeat(("g", []), heartbeatFingerprint=11, withoutSub=True)
    assert not sub_change(processor.heart_beat(connection, without))
    assert parts.consumers.find_subscription_data("g", "T") is not None
    other = heartbeat(("g", ["U"]), client="c2", heartbeatFingerprint=12)
    assert sub_change(processor.heart_beat(FakeConnection(), other))
    assert sub_change(processor.heart_beat(connection, without))


def test_broker_that_does_not_know_the_subscriptions_asks_for_them(processor):
    without = heartbeat(("g", []), heartbeatFingerprint=11, withoutSub=True)
    connection = FakeConnection()
    assert sub_change(processor.heart_beat(connection, without))
    processor.heart_beat(connection, heartbeat(("g", ["T"]), heartbeatFingerprint=11))
    assert not sub_change(processor.heart_beat(connection, without))


def test_a_subscription_that_is_too_long_keeps_its_group_alone_out(processor, parts):
    command = heartbeat(("g", ["T"]), ("h", ["T"]), producers=["p"])
    body = json.loads(command.body)
    body["consumerDataSet"][0]["subscriptionDataSet"][0]["subString"] = "a||" * 2_000
    command.body = json.dumps(body).encode()

    with pytest.raises(BrokerResponseError, match=r"maxSubscriptionTags: a subscription of 2,001 tags") as error:
        processor.heart_beat(FakeConnection(), command)

    assert error.value.code == ResponseCode.SUBSCRIPTION_PARSE_FAILED
    assert list(parts.consumers.groups) == ["h"]
    assert list(parts.producers.groups) == ["p"]


def refusal(processor, command, connection=None):
    with pytest.raises(BrokerResponseError) as error:
        processor.heart_beat(connection or FakeConnection(), command)
    return error.value.code, error.value.remark


def assert_nothing_left(parts, groups=()):
    assert set(parts.consumers.groups) == set(groups)
    assert parts.producers.groups == parts.producers.clients == {}
    assert {name for name in parts.topic_configs.topics if name.startswith("%RETRY%")} == {
        f"%RETRY%{group}" for group in groups
    }


MANY: list[tuple[str, list[str]]] = [(f"g{number}", []) for number in range(513)]


@pytest.mark.parametrize(
    ("command", "remark"),
    [
        (heartbeat(*MANY), "maxGroupsPerClient: 513 groups exceed the limit of 512; use several clients or raise"),
        (heartbeat(*[("g", [])] * 513), "maxGroupsPerClient: 513 groups"),
        (heartbeat(("g", []), producers=[f"p{number}" for number in range(512)]), "maxGroupsPerClient: 513 groups"),
        (
            heartbeat(*((f"g{group}", [f"T{number}" for number in range(513)]) for group in range(2))),
            "maxSubscriptionsPerClient: 1,026 subscriptions exceed the limit of 1,024; use several",
        ),
        (
            heartbeat(("g", []), client="c" * 1_025),
            "maxClientIdLength: 1,025 characters of a clientID exceed the limit",
        ),
        (heartbeat(("g", []), padding="x" * 262_144), "maxHeartbeatSize: 262,"),
    ],
)
def test_a_heartbeat_that_is_too_large_leaves_nothing_behind(processor, parts, command, remark):
    code, text = refusal(processor, command)
    assert code == ResponseCode.INVALID_PARAMETER
    assert text.startswith(remark)
    assert_nothing_left(parts)


def test_a_process_with_many_producers_and_consumers_is_one_ordinary_client(processor, parts):
    command = heartbeat(
        *((f"group-{number}", [f"topic-{number}", f"%RETRY%group-{number}"]) for number in range(300)),
        producers=[f"producer-{number}" for number in range(200)],
    )

    processor.heart_beat(FakeConnection(), command)

    assert (len(parts.consumers.groups), len(parts.producers.groups)) == (300, 200)


def test_groups_of_earlier_heartbeats_count(processor, parts):
    connection = FakeConnection()
    for number in range(512):
        processor.heart_beat(connection, heartbeat((f"g{number}", [f"T{number}-{topic}" for topic in range(2)])))
    processor.heart_beat(connection, heartbeat(("g0", [f"T{topic}" for topic in range(2)])))
    assert refusal(processor, heartbeat(("h", [])), connection)[1].startswith("maxGroupsPerClient: 513 groups")
    too_many = heartbeat(("g0", [f"T{topic}" for topic in range(3)]))
    assert refusal(processor, too_many, connection)[1].startswith("maxSubscriptionsPerClient: 1,025 subscriptions")
    parts.consumers.unregister("g1", connection)
    processor.heart_beat(connection, heartbeat(("h", [])))


def test_the_length_of_all_subscriptions_counts(processor):
    connection = FakeConnection()
    for number in range(2):
        command = heartbeat((f"g{number}", [f"T{topic}" for topic in range(10)]))
        command.body = command.body.replace(b'"*"', b'"' + b"a" * 12_000 + b'"')
        processor.heart_beat(connection, command)
    command.body = command.body.replace(b'"g1"', b'"g2"')
    assert refusal(processor, command, connection)[1].startswith(
        "maxHeartbeatSize: 360,150 characters of subscriptions exceed the limit of 262,144"
    )


def test_no_group_of_a_heartbeat_is_created_when_there_is_no_room_for_all(processor, parts):
    apply_updates([parts.config], {"maxAutoCreateGroupNums": "10"})
    processor.heart_beat(FakeConnection(), heartbeat(("a", [])))
    connection = FakeConnection()
    command = heartbeat(("a", []), ("b", []), ("c", []), producers=["p"], client="c2")
    code, remark = refusal(processor, command, connection)
    assert code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert remark.startswith("maxAutoCreateGroupNums: 2 new consumer groups beside 9 exceed the limit of 10")
    # Without a sign of life the client would lose its place in the groups that it has.
    assert parts.consumers.group_info("a").client_ids() == ["c1", "c2"]
    assert set(parts.producers.groups) == {"p"}
    parts.producers.unregister("p", connection)
    assert_nothing_left(parts, ["a"])
    processor.heart_beat(FakeConnection(), heartbeat(("a", []), ("b", [])))


@pytest.mark.parametrize("command", [heartbeat(("g" * 263, [])), heartbeat(producers=["p" * 263])])
def test_a_name_that_is_too_long_is_rejected(processor, parts, command):
    code, remark = refusal(processor, command)
    assert (code, "has 263 characters; at most 262 are allowed" in remark) == (ResponseCode.INVALID_PARAMETER, True)
    assert_nothing_left(parts)


def test_filters_that_take_too_long_to_compile_are_rejected(processor, parts):
    apply_updates([parts.config], {"enablePropertyFilter": "true"})
    command = heartbeat(("g", [f"T{number}" for number in range(600)]))
    body = json.loads(command.body)
    for subscription in body["consumerDataSet"][0]["subscriptionDataSet"]:
        subscription.update(subString="a > 1", expressionType="SQL92")
    command.body = json.dumps(body).encode()
    code, remark = refusal(processor, command)
    assert code == ResponseCode.INVALID_PARAMETER
    assert remark.startswith("maxFilterLengthPerClient: 10,200 characters exceed the limit of 4,200")
    assert_nothing_left(parts)


def test_a_client_joins_no_group_of_the_broker(processor, parts):
    command = heartbeat(("CID_RMQ_SYS_TRANS", ["T"]), ("g", ["T"]))
    code, remark = refusal(processor, command, FakeConnection("10.0.0.9:1", Audience.CLIENT))
    assert (code, remark) == (
        ResponseCode.NO_PERMISSION,
        "the consumer group CID_RMQ_SYS_TRANS belongs to the broker; use a group of your own",
    )
    assert list(parts.consumers.groups) == ["g"]


def test_a_long_language_is_rejected(processor, parts):
    command = heartbeat(("g", ["T"]), producers=["p"])
    command.language = "x" * 65
    code, remark = refusal(processor, command)
    assert code == ResponseCode.INVALID_PARAMETER
    assert remark.startswith("language: 65 characters exceed the limit of 64")
    assert_nothing_left(parts)


@pytest.mark.parametrize("large", [{"expressionType": "x" * 12_000}, {"codeSet": list(range(1_000))}])
def test_all_that_is_kept_of_subscriptions_counts(processor, large):
    groups = [
        {"groupName": f"g{number}", "subscriptionDataSet": [{"topic": "T", "subString": "*", **large}]}
        for number in range(22)
    ]
    connection = FakeConnection()
    for group in groups[:-1]:
        processor.heart_beat(connection, heartbeat(consumerDataSet=[group]))
    code, remark = refusal(processor, heartbeat(consumerDataSet=groups[-1:]), connection)
    assert code == ResponseCode.INVALID_PARAMETER
    assert "characters of subscriptions exceed the limit of 262,144" in remark


def test_a_consumer_that_pulls_is_left_out_while_it_is_rejected(processor, parts):
    command = heartbeat(("pulled", ["T"]), producers=["p"])
    pulls = request(RequestCode.HEART_BEAT, body=command.body.replace(b"CONSUME_PASSIVELY", b"CONSUME_ACTIVELY"))
    apply_updates([parts.config], {"rejectPullConsumerEnable": "true"})

    processor.heart_beat(FakeConnection(), pulls)
    processor.heart_beat(FakeConnection(), heartbeat(("pushed", ["T"]), client="c2"))

    assert list(parts.consumers.groups) == ["pushed"]
    assert parts.producers.find_channel("c1") is not None
    apply_updates([parts.config], {"rejectPullConsumerEnable": "false"})
    processor.heart_beat(FakeConnection(), pulls)
    assert set(parts.consumers.groups) == {"pushed", "pulled"}


def test_new_producers_are_left_out_where_there_are_no_transactions(processor, parts):
    known, new = FakeConnection(), FakeConnection()
    processor.heart_beat(known, heartbeat(producers=["p"]))
    apply_updates([parts.config], {"enableRegisterProducer": "false"})
    processor.heart_beat(new, heartbeat(producers=["p"], client="kept"))
    apply_updates([parts.config], {"rejectTransactionMessage": "true"})

    parts.clock.advance(1)
    processor.heart_beat(known, heartbeat(producers=["p"]))
    processor.heart_beat(FakeConnection(), heartbeat(producers=["p"], client="left out"))

    clients = {channel.client_id: channel.last_update for channel in parts.producers.groups["p"].values()}
    assert clients.keys() == {"c1", "kept"}
    assert clients["c1"] == parts.clock.monotonic()


class Joined(Requester):
    """A requester that notes the groups whose rights count from now on, and all groups of the client."""

    def __init__(self, body=None):
        super().__init__("joe", "10.0.0.1", "C", AccessRules, lambda error: None, body=body)
        self.noted: list[tuple[list[str], set[str]]] = []
        self.joined = lambda _heartbeat, accepted, groups: self.noted.append(
            ([data.group_name for data in accepted], set(groups))
        )


def test_rights_count_for_groups_that_were_registered_also_beside_one_that_was_not(processor, parts):
    connection, requester = FakeConnection(), Joined()
    processor.heart_beat(connection, heartbeat(("g", ["T"])), requester)
    processor.heart_beat(connection, heartbeat(producers=["p"]), requester)
    with pytest.raises(BrokerResponseError, match="illegal characters"):
        processor.heart_beat(connection, heartbeat(("h", ["T"]), ("a b", [])), requester)
    parts.subscription_groups._config = parts.config.model_copy(update={"auto_create_subscription_group": False})
    processor.heart_beat(connection, heartbeat(("unknown", ["T"])), requester)
    assert requester.noted == [(["g"], {"g"}), ([], {"g"}), (["h"], {"g", "h"}), ([], {"g", "h"})]


def test_a_heartbeat_beyond_the_limits_joins_no_group(processor, parts):
    requester = Joined()
    topics = [f"T{number}" for number in range(parts.config.max_subscriptions_per_client + 1)]
    with pytest.raises(BrokerResponseError, match="maxSubscriptionsPerClient"):
        processor.heart_beat(FakeConnection(), heartbeat(("g", topics)), requester)
    assert requester.noted == []


def test_a_body_that_was_decoded_for_its_rights_is_neither_decoded_again_nor_kept(processor, parts):
    command = heartbeat(("g", ["T"]))
    requester = Joined(HeartbeatData.decode(command.body))
    command.body = b"{no json"
    processor.heart_beat(FakeConnection(), command, requester)
    assert requester.noted == [(["g"], {"g"})]
    (channel,) = parts.consumers.group_info("g").channels.values()
    assert channel.may_publish.__self__ is requester
    assert requester.take_body() is None
