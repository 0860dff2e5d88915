"""Requests that find a message by something else than its topic: the topic of what they find counts."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from rocketbroker.codec.message.message_id import decode_message_id
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.support.raw_client import RawAnswer
from tests.support.raw_requests import consumer_data, pull_fields, send_fields, topic_fields
from tests.support.signed_client import SignedClient
from tests.support.waiting import wait_until

SECRET = b"a secret"
USERS = {name: f"{name}-secret" for name in ("victim", "mallory", "monitor")}
POLICIES = {
    "victim": {"Topic:secret": "Pub,Sub,Get,Update", "Topic:%DLQ%vg": "Get", "Group:vg": "Sub,Get"},
    # Everything but what belongs to the victim.
    "mallory": {"Topic:mine": "All", "Group:mine": "All", "Topic:RMQ_*": "All", "Topic:rmq_*": "All"},
    "monitor": {"Topic:*": "Sub,Get", "Group:*": "Sub", "Cluster:DefaultCluster": "Get"},
}
HALF, SCHEDULE, TIMER = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"
OWN_TOPICS = (HALF, "RMQ_SYS_TRANS_OP_HALF_TOPIC", SCHEDULE, TIMER, "rmq_sys_REVIVE_LOG_DefaultCluster")


class Server:
    """A server with messages of the victim, and a connection of each user."""

    def __init__(self, mq: RocketMQServer) -> None:
        self.mq = mq
        self.address = mq.broker_addr
        self.by_name: dict[str, SignedClient] = {}
        for name in (*USERS, "admin"):
            credentials = mq.credentials(name)
            self.by_name[name] = SignedClient(self.address, (credentials.access_key, credentials.secret_key))
        for topic in ("mine", "secret"):
            self.ok("admin", Code.UPDATE_AND_CREATE_TOPIC, topic_fields(topic))
        self.plain = self.send("secret", "KEYS\x01order-1\x02")
        self.delayed = self.send("secret", "DELAY\x013\x02")
        self.timer = self.send("secret", "TIMER_DELAY_SEC\x01600\x02")
        self.half = self.send("secret", "TRAN_MSG\x01true\x02PGROUP\x01pg\x02", f="4")
        self.own = self.send("mine", "", user="mallory")

    def ask(self, user: str, code: Code, fields: dict[str, Any] | None = None, body: bytes = b"") -> RawAnswer:
        return self.by_name[user].ask(code, fields, body)

    def ok(self, user: str, code: Code, fields: dict[str, Any] | None = None, body: bytes = b"") -> RawAnswer:
        answer = self.ask(user, code, fields, body)
        assert answer.code == ResponseCode.SUCCESS, answer
        return answer

    def send(self, topic: str, properties: str, user: str = "victim", **fields: str) -> str:
        """Send a message of the user; return its offset message id."""
        properties = f"UNIQ_KEY\x01{len(properties):032X}\x02{properties}"
        answer = self.ok(user, Code.SEND_MESSAGE_V2, send_fields(topic, i=properties, **fields), SECRET)
        return answer.fields["msgId"]

    def log_end(self) -> int:
        answer = self.ok("admin", Code.GET_BROKER_RUNTIME_INFO)
        table: dict[str, str] = json.loads(answer.body)["table"]
        return int(table["commitLogMaxOffset"])

    def refused(self, user: str, code: Code, fields: dict[str, Any], body: bytes = b"") -> RawAnswer:
        """Ask in vain: nothing is stored or made, and nothing is revealed."""
        before = self.log_end(), self.ok("admin", Code.GET_ALL_TOPIC_CONFIG).body
        answer = self.ask(user, code, fields, body)
        assert answer.code == ResponseCode.NO_PERMISSION, answer
        assert (answer.body, answer.fields) == (b"", {})
        assert f"User:{user} has no permission" in answer.remark
        assert len(answer.remark.splitlines()) == 1
        assert (self.log_end(), self.ok("admin", Code.GET_ALL_TOPIC_CONFIG).body) == before
        return answer

    def hidden(self, user: str, code: Code, fields: dict[str, Any]) -> None:
        """Ask in vain for a message whose topic the user does not learn."""
        assert "secret" not in self.refused(user, code, fields).remark.replace(f"{user}-secret", "")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with RocketMQServer(users=USERS, policies=POLICIES) as mq:
        made = Server(mq)
        yield made
        for client in made.by_name.values():
            client.close()


def offset_of(msg_id: str) -> str:
    return str(decode_message_id(msg_id).offset)


def view(msg_id: str, topic: str) -> dict[str, str]:
    return {"offset": offset_of(msg_id), "topic": topic}


def send_back(msg_id: str, group: str) -> dict[str, str]:
    return {
        "offset": offset_of(msg_id), "group": group, "delayLevel": "0", "originMsgId": msg_id, "originTopic": group,
        "unitMode": "false", "maxReconsumeTimes": "16",
    }  # fmt: skip


def test_a_message_is_viewed_by_who_may_read_its_topic(server: Server):
    assert SECRET in server.ok("victim", Code.VIEW_MESSAGE_BY_ID, view(server.plain, "secret")).body
    server.ok("mallory", Code.VIEW_MESSAGE_BY_ID, view(server.own, "mine"))
    server.hidden("mallory", Code.VIEW_MESSAGE_BY_ID, view(server.plain, "mine"))
    assert "Topic:secret" in server.refused("mallory", Code.VIEW_MESSAGE_BY_ID, view(server.plain, "secret")).remark


@pytest.mark.parametrize("name", ["delayed", "timer", "half"])
def test_a_message_that_waits_is_viewed_by_who_may_read_its_real_topic(server: Server, name: str):
    msg_id = getattr(server, name)
    assert SECRET in server.ok("victim", Code.VIEW_MESSAGE_BY_ID, view(msg_id, "secret")).body
    server.hidden("mallory", Code.VIEW_MESSAGE_BY_ID, view(msg_id, "mine"))
    # Prefixes that cover the topic in which it waits are not enough, unless their user sees the whole cluster.
    server.refused("mallory", Code.VIEW_MESSAGE_BY_ID, view(msg_id, HALF))
    assert SECRET in server.ok("monitor", Code.VIEW_MESSAGE_BY_ID, view(msg_id, HALF)).body


def test_a_message_is_sent_back_by_who_may_read_its_topic(server: Server):
    """The retry topic of the own group would show any message."""
    server.hidden("mallory", Code.CONSUMER_SEND_MSG_BACK, send_back(server.plain, "mine"))
    server.hidden("mallory", Code.CONSUMER_SEND_MSG_BACK, send_back(server.half, "mine"))
    server.ok("victim", Code.CONSUMER_SEND_MSG_BACK, send_back(server.plain, "vg"))
    server.ok("mallory", Code.CONSUMER_SEND_MSG_BACK, send_back(server.own, "mine"))


def test_a_retry_and_a_dead_letter_are_found_by_the_topic_of_their_first_delivery(server: Server):
    def last(topic: str, user: str = "admin") -> str:
        queue = {"topic": topic, "queueId": "0"}
        wait_until(lambda: server.ok(user, Code.GET_MAX_OFFSET, queue).fields["offset"] != "0", "the dead letter")
        fields = pull_fields(topic, consumerGroup="vg", subscription="*")
        record = server.ok(user, Code.PULL_MESSAGE, fields).body
        return str(int.from_bytes(record[28:36], "big"))

    server.ok("victim", Code.CONSUMER_SEND_MSG_BACK, {**send_back(server.plain, "vg"), "delayLevel": "-1"})
    offset = last("%DLQ%vg")
    assert SECRET in server.ok("victim", Code.VIEW_MESSAGE_BY_ID, {"offset": offset, "topic": "secret"}).body
    server.hidden("mallory", Code.VIEW_MESSAGE_BY_ID, {"offset": offset, "topic": "mine"})
    # A retry once more: the group's own retry topic needs no right on the topic.
    server.hidden("mallory", Code.CONSUMER_SEND_MSG_BACK, {**send_back(server.plain, "mine"), "offset": offset})


def test_a_consumer_is_given_no_message_that_the_asker_may_not_read(server: Server):
    consumer = SignedClient(server.address, ("mallory", USERS["mallory"]))
    subscription = {"topic": "mine", "subString": "*", "subVersion": 1, "expressionType": "TAG"}
    data = {**consumer_data("mine"), "subscriptionDataSet": [subscription]}
    body = json.dumps({"clientID": "c1", "consumerDataSet": [data], "producerDataSet": []}).encode()
    assert consumer.ask(Code.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS
    fields = {"consumerGroup": "mine", "clientId": "c1", "msgId": server.plain}
    server.hidden("mallory", Code.CONSUME_MESSAGE_DIRECTLY, fields)
    server.hidden("mallory", Code.CONSUME_MESSAGE_DIRECTLY, {**fields, "topic": "mine"})
    # A message would have come before the answer to the consumer's next request.
    consumer.send(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "mine"})
    came = []
    while (frame := consumer.client.read()) is not None and not frame.header["flag"] & 1:
        came.append(frame.code)
    assert Code.CONSUME_MESSAGE_DIRECTLY not in came
    consumer.close()


def colliding_key(topic: str, key: str, own: str) -> str:
    """Return a key of the topic ``own`` whose hash is that of ``key`` in ``topic``."""

    def java_hash(text: str, value: int = 0) -> int:
        for character in text:
            value = (31 * value + ord(character)) % 2**32
        return value

    length, least = 7, ord("0")
    wanted = java_hash(f"{topic}#{key}")
    rest = (wanted - java_hash("0" * length, java_hash(f"{own}#"))) % 2**32
    digits = ""
    for _ in range(length):
        rest, digit = divmod(rest, 31)
        digits = chr(least + digit) + digits
    assert java_hash(f"{own}#{digits}") == wanted
    return digits


def test_a_key_with_the_same_hash_finds_no_message_of_another_topic(server: Server):
    fields = {"maxNum": "32", "beginTimestamp": "0", "endTimestamp": str(2**62), "indexType": "K"}
    own = {**fields, "topic": "secret", "key": "order-1"}
    wait_until(lambda: SECRET in server.ask("victim", Code.QUERY_MESSAGE, own).body, "the index")
    key = colliding_key("secret", "order-1", "mine")
    answer = server.ask("mallory", Code.QUERY_MESSAGE, {**fields, "topic": "mine", "key": key})
    assert (answer.code, answer.body) == (ResponseCode.QUERY_NOT_FOUND, b"")


def end(server: Server, outcome: str) -> dict[str, str]:
    return {
        "producerGroup": "pg", "tranStateTableOffset": "0", "commitLogOffset": offset_of(server.half),
        "commitOrRollback": outcome, "fromTransactionCheck": "false", "msgId": "0", "transactionId": "0",
    }  # fmt: skip


def test_a_transaction_is_ended_by_who_may_send_to_its_topic(server: Server):
    rollback = end(server, "12")
    server.hidden("mallory", Code.END_TRANSACTION, rollback)
    server.hidden("mallory", Code.END_TRANSACTION, {**rollback, "topic": "mine"})
    other = {**rollback, "commitLogOffset": offset_of(server.plain)}
    answer = server.ask("mallory", Code.END_TRANSACTION, other)
    assert "another message" in answer.remark
    assert "secret" not in answer.remark


def test_a_transaction_is_resumed_by_who_may_update_its_topic(server: Server):
    fields = {"topic": "mine", "msgId": server.half}
    server.hidden("mallory", Code.RESUME_CHECK_HALF_MESSAGE, fields)
    server.hidden("mallory", Code.RESUME_CHECK_HALF_MESSAGE, {**fields, "msgId": server.plain})
    server.ok("victim", Code.RESUME_CHECK_HALF_MESSAGE, {"topic": "secret", "msgId": server.half})


@pytest.mark.parametrize("topic", OWN_TOPICS)
def test_a_prefix_covers_no_topic_of_the_broker(server: Server, topic: str):
    pull = pull_fields(topic, consumerGroup="mine")
    pop = {
        "consumerGroup": "mine", "topic": topic, "queueId": "-1", "maxMsgNums": "1", "invisibleTime": "60000",
        "pollTime": "0", "bornTime": "0", "initMode": "0", "order": "false",
    }  # fmt: skip
    query = {"topic": topic, "key": "k", "maxNum": "1", "beginTimestamp": "0", "endTimestamp": "1"}
    cases: list[tuple[Code, dict[str, str]]] = [
        (Code.PULL_MESSAGE, pull),
        (Code.LITE_PULL_MESSAGE, pull),
        (Code.POP_MESSAGE, pop),
        (Code.PEEK_MESSAGE, {"consumerGroup": "mine", "topic": topic, "queueId": "0", "maxMsgNums": "1"}),
        (Code.QUERY_MESSAGE, query),
        (Code.GET_MAX_OFFSET, {"topic": topic, "queueId": "0"}),
        (Code.SEND_MESSAGE_V2, send_fields(topic)),
    ]
    for code, fields in cases:
        assert f"Topic:{topic}" in server.refused("mallory", code, fields).remark, code
    own = {**pull, "consumerGroup": "mon"}
    assert server.ask("monitor", Code.PULL_MESSAGE, own).code != ResponseCode.NO_PERMISSION


def test_topics_of_the_broker_that_clients_need_are_covered(server: Server):
    """Traces and replies are sent by all, and read by whoever is named for it."""
    for topic in ("RMQ_SYS_TRACE_TOPIC", "BenchmarkTest"):
        server.ok("admin", Code.AUTH_CREATE_ACL, {"subject": "User:victim"}, policy("Topic:*", "Pub,Sub"))
        assert server.ask("victim", Code.SEND_MESSAGE_V2, send_fields(topic)).code == ResponseCode.SUCCESS
    for topic in ("RMQ_SYS_TRACE_TOPIC", "DefaultCluster_REPLY_TOPIC"):
        server.refused("victim", Code.PULL_MESSAGE, pull_fields(topic, consumerGroup="vg"))
        server.ok("admin", Code.AUTH_CREATE_ACL, {"subject": "User:victim"}, policy(f"Topic:{topic}", "Sub"))
        answer = server.ask("victim", Code.PULL_MESSAGE, pull_fields(topic, consumerGroup="vg"))
        assert answer.code != ResponseCode.NO_PERMISSION, answer
    server.ok("admin", Code.AUTH_DELETE_ACL, {"subject": "User:victim", "policyType": "Custom", "resource": "Topic:*"})


def policy(resource: str, actions: str) -> bytes:
    entry = {"resource": resource, "actions": actions.split(","), "decision": "Allow"}
    return json.dumps({"policies": [{"policyType": "Custom", "entries": [entry]}]}).encode()


def test_a_half_message_is_handed_to_a_producer_of_the_topic_alone(server: Server):
    """Any user may say that it is of a producer group."""
    strange, own = (SignedClient(server.address, (name, USERS[name])) for name in ("mallory", "victim"))
    body = json.dumps({"clientID": "p", "consumerDataSet": [], "producerDataSet": [{"groupName": "pg"}]}).encode()
    assert strange.ask(Code.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS
    producers = server.mq._broker("broker-a").controller.producers
    assert list(producers.groups["pg"])
    assert producers.available_channel("pg", "secret") is None
    assert own.ask(Code.HEART_BEAT, {}, body).code == ResponseCode.SUCCESS
    connections = list(producers.groups["pg"])
    assert producers.available_channel("pg", "secret") is connections[1]
    assert producers.available_channel("pg", "mine") is connections[0]
    # A policy that changes counts for connections that live.
    server.ok("admin", Code.AUTH_CREATE_ACL, {"subject": "User:mallory"}, policy("Topic:secret", "Pub"))
    assert {producers.available_channel("pg", "secret") for _ in range(2)} == set(connections)
    server.ok("admin", Code.AUTH_DELETE_ACL, {"subject": "User:mallory", "resource": "Topic:secret"})
    assert producers.available_channel("pg", "secret") is connections[1]
    strange.close()
    own.close()
