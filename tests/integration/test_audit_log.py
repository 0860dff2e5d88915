"""Audit log of a broker and a name server with access control: each change and each refusal, and never a secret."""

import json
import logging
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pytest

from docs._ext.request_codes import served_codes
from rocketbroker.auth.audit_log import AUDIT_LOGGER
from rocketbroker.auth.policies import Action
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.codec.remoting.handler import Audience
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from rocketbroker.transport.access import ProtectedMode
from tests.support.ports import LOOPBACK
from tests.support.raw_client import RawAnswer
from tests.support.raw_requests import send_fields
from tests.support.signed_client import SignedClient

ROOT, JOE = ("root", "root-secret-7"), ("joe", "joe-secret-7")
SECRETS = ("root-secret-7", "joe-secret-7", "inner-secret-7", "joe-secret-8")
PROPERTIES = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "inner-secret-7"}),
}
# Requests that need a right to change something, and are the traffic of clients and brokers all the same.
TRAFFIC = {
    Code.UPDATE_CONSUMER_OFFSET,
    Code.REGISTER_BROKER,
    Code.UNREGISTER_BROKER,
    Code.BROKER_HEARTBEAT,
    Code.QUERY_DATA_VERSION,
    Code.REGISTER_TOPIC_IN_NAMESRV,
    Code.EXCHANGE_BROKER_HA_INFO,
    Code.POP_ROLLBACK,
    Code.NOTIFY_MIN_BROKER_ID_CHANGE,
}
TOPIC_FIELDS = {
    "topic": "Orders", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
    "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
}  # fmt: skip
GROUP = {"group": "CG", "topic": "Orders"}
ENTRY = {"resource": "Topic:T", "actions": ["Pub"], "decision": "Allow"}
ACL = {"policies": [{"policyType": "Custom", "entries": [ENTRY]}]}
ENTRIES = [{"policyType": "Custom", "entry": {**ENTRY, "sourceIps": None}}]


class Change(NamedTuple):
    """A change by root, and what the line on it says: parts of ``before`` and ``after``, found by their names."""

    code: Code
    fields: dict[str, Any]
    body: object = b""
    before: object = None
    after: object = None
    result: str = "SUCCESS"


# In this order, each on what those before it left.
BROKER_CHANGES = [
    Change(Code.UPDATE_AND_CREATE_TOPIC, TOPIC_FIELDS, after={"topicName": "Orders", "perm": 6}),
    Change(
        Code.UPDATE_AND_CREATE_TOPIC,
        {**TOPIC_FIELDS, "perm": "4"},
        before={"topicName": "Orders", "perm": 6},
        after={"topicName": "Orders", "perm": 4},
    ),
    Change(
        Code.UPDATE_AND_CREATE_TOPIC_LIST,
        {},
        {"topicConfigList": [{"topicName": f"L{number}"} for number in range(102)]},
        before={"L0": None, "...": "2 more"},
        after={"L0": {"topicName": "L0"}, "...": "2 more"},
    ),
    Change(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, {"groupName": "CG"}, after={"groupName": "CG"}),
    Change(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
        {},
        {"groupConfigList": [{"groupName": "CG", "retryMaxTimes": 3}]},
        before={"CG": {"retryMaxTimes": 16}},
        after={"CG": {"retryMaxTimes": 3}},
    ),
    Change(
        Code.INVOKE_BROKER_TO_RESET_OFFSET,
        {**GROUP, "timestamp": "0", "isForce": "true", "queueId": "0", "offset": "0"},
        before={},
        after={"0": 0},
    ),
    Change(
        Code.CLONE_GROUP_OFFSET,
        {"srcGroup": "CG", "destGroup": "CG2", "topic": "Orders"},
        before={"Orders": {}},
        after={"Orders": {"0": 0}},
    ),
    Change(
        Code.UPDATE_AND_GET_GROUP_FORBIDDEN,
        {**GROUP, "readable": "false"},
        before={"forbidden": 0},
        after={"forbidden": 4},
    ),
    Change(
        Code.SET_MESSAGE_REQUEST_MODE,
        {},
        {"topic": "Orders", "consumerGroup": "CG", "mode": "POP", "popShareQueueNum": 2},
        before={"mode": "PULL"},
        after={"mode": "POP", "popShareQueueNum": 2},
    ),
    Change(Code.UPDATE_BROKER_CONFIG, {}, b"traceOn=false", before={"traceOn": "true"}, after={"traceOn": "false"}),
    Change(Code.UPDATE_BROKER_CONFIG, {}, b"traceOnn=false", before={}, after={}, result="INVALID_PARAMETER"),
    Change(Code.UPDATE_BROKER_CONFIG, {}, b"", result="INVALID_PARAMETER"),
    Change(
        Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": "CG"}, before={"group": {"groupName": "CG"}}, after={"group": None}
    ),
    Change(Code.DELETE_TOPIC_IN_BROKER, {"topic": "Orders"}, before={"topic": {"perm": 4}}, after={"topic": None}),
    Change(Code.CLEAN_UNUSED_TOPIC, {}),
    Change(Code.CLEAN_EXPIRED_CONSUMEQUEUE, {}),
    Change(Code.DELETE_EXPIRED_COMMITLOG, {}),
    Change(Code.RESUME_CHECK_HALF_MESSAGE, {"topic": "Orders", "msgId": "x"}, result=""),
    Change(Code.CONSUME_MESSAGE_DIRECTLY, {"consumerGroup": "CG", "topic": "Orders", "msgId": "x"}, result=""),
]
USER_CHANGES = [
    Change(Code.AUTH_CREATE_USER, {"username": JOE[0]}, {"password": JOE[1]}, after={"userType": "Normal"}),
    Change(
        Code.AUTH_UPDATE_USER,
        {"username": JOE[0]},
        {"password": "joe-secret-8", "userStatus": "disable"},
        before={"userStatus": "enable"},
        after={"userStatus": "disable"},
    ),
    Change(Code.AUTH_CREATE_ACL, {"subject": "User:joe"}, ACL, after=ENTRIES),
    Change(Code.AUTH_UPDATE_ACL, {"subject": "User:joe"}, ACL, before=ENTRIES, after=ENTRIES),
    Change(Code.AUTH_DELETE_ACL, {"subject": "User:joe"}, before=ENTRIES),
    Change(Code.AUTH_DELETE_USER, {"username": JOE[0]}, before={"user": {"username": "joe"}}, after={"user": None}),
]
KEY = {"namespace": "N", "key": "K"}
NAMESRV_CHANGES = [
    Change(Code.PUT_KV_CONFIG, {**KEY, "value": "1"}, after="1"),
    Change(Code.DELETE_KV_CONFIG, KEY, before="1"),
    Change(
        Code.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true", before={"orderMessageEnable": "false"}, after={}
    ),
    Change(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}, before={"TBW102": 7}, after={"TBW102": 5}),
    Change(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}, before={"TBW102": 5}, after={"TBW102": 6}),
    Change(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "TBW102"}, before={"broker-a": {"perm": 6}}, after={}),
]


def holds(value: object, part: object) -> bool:
    """Return true if a JSON value has all that a part of it says."""
    if isinstance(part, dict):
        return isinstance(value, dict) and all(holds(value.get(name), each) for name, each in part.items())
    return value == part


class Servers:
    """Servers, what root asks of them, and the lines of their audit logs."""

    def __init__(self, mq: RocketMQServer, caplog: pytest.LogCaptureFixture) -> None:
        self.broker, self.namesrv = mq.broker_addr, mq.namesrv_addr
        self._clients: dict[tuple[str, tuple[str, str] | None], SignedClient] = {}
        self._caplog = caplog

    def ask(
        self,
        address: str,
        code: Code,
        fields: dict[str, Any],
        body: object = b"",
        user: tuple[str, str] | None = ROOT,
    ) -> RawAnswer:
        client = self._clients.get((address, user))
        if client is None:
            client = self._clients[address, user] = SignedClient(address, user)
        return client.ask(code, fields, body if isinstance(body, bytes) else json.dumps(body).encode())

    def lines(self) -> list[dict[str, Any]]:
        found = [record.message for record in self._caplog.records if record.name == AUDIT_LOGGER]
        self._caplog.clear()
        for text in found:
            assert not any(secret in text for secret in SECRETS)
        return [json.loads(text) for text in found]

    def close(self) -> None:
        for client in self._clients.values():
            client.close()


@pytest.fixture
def servers(caplog: pytest.LogCaptureFixture) -> Iterator[Servers]:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    with RocketMQServer(PROPERTIES) as mq:
        made = Servers(mq, caplog)
        yield made
        made.close()


@pytest.mark.parametrize("place", ["broker", "namesrv"])
def test_each_change_has_a_line_with_both_states(servers: Servers, place: str):
    address: str = getattr(servers, place)
    changes = BROKER_CHANGES if place == "broker" else NAMESRV_CHANGES
    for change in [*changes, *USER_CHANGES]:
        answer = servers.ask(address, change.code, change.fields, change.body)
        (line,) = servers.lines()
        assert (line["event"], line["request"], line["user"]) == ("change", change.code.name, ROOT[0]), line
        assert line["server"] == {"broker": "broker-a_0", "namesrv": "namesrv"}[place]
        assert line["address"].startswith("127.0.0.1:")
        assert holds(line.get("before"), change.before), line
        assert holds(line.get("after"), change.after), line
        assert (line["result"] == "SUCCESS") == (answer.code == 0)
        assert line["result"] == change.result or not change.result, line
        if "password" in str(change.body):
            assert line["fields"]["password"] == "******"


def test_what_is_refused_has_a_line_with_who_and_why(servers: Servers):
    servers.ask(servers.broker, Code.AUTH_CREATE_USER, {"username": JOE[0]}, {"password": JOE[1]})
    servers.lines()
    for user, code, fields, who, why in (
        (None, Code.UPDATE_BROKER_CONFIG, {}, None, "username cannot be null"),
        (("joe", "joe-secret-8"), Code.SEND_MESSAGE_V2, send_fields("TBW102"), "joe", "check signature failed"),
        (JOE, Code.SEND_MESSAGE_V2, send_fields("TBW102"), "joe", "no permission to access Topic:TBW102"),
        (JOE, Code.AUTH_DELETE_USER, {"username": "root"}, "joe", "no permission to access Cluster:DefaultCluster"),
    ):
        servers.ask(servers.broker, code, fields, b"traceOn=false", user)
        (line,) = servers.lines()
        assert (line["event"], line["request"], line.get("user")) == ("refused", code.name, who), line
        assert why in line["reason"]
    servers.ask(servers.namesrv, Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"}, user=None)
    (line,) = servers.lines()
    assert (line["server"], line["request"]) == ("namesrv", "WIPE_WRITE_PERM_OF_BROKER")


def test_a_slave_without_a_proof_has_a_line(servers: Servers):
    settings = servers.ask(servers.broker, Code.GET_BROKER_CONFIG, {}).body.decode().splitlines()
    (port,) = (int(line.partition("=")[2]) for line in settings if line.startswith("haListenPort="))
    with socket.create_connection((LOOPBACK, port), 10) as stranger:
        address = f"{LOOPBACK}:{stranger.getsockname()[1]}"
        stranger.sendall(bytes(16))
        with suppress(ConnectionResetError):
            assert stranger.recv(1) == b""
    (line,) = servers.lines()
    assert (line["event"], line["server"], line["request"]) == ("refused", "broker-a_0", "HA handshake")
    assert line["address"] == address
    assert "it asks for the log without a proof" in line["reason"]


def test_what_protected_mode_refuses_has_a_line(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    with RocketMQServer() as mq:
        monkeypatch.setattr(ProtectedMode, "__call__", lambda *_: Audience.CLIENT)
        made = Servers(mq, caplog)
        for address, server, code in (
            (made.broker, "broker-a_0", Code.GET_BROKER_CONFIG),
            (made.namesrv, "namesrv", Code.GET_NAMESRV_CONFIG),
        ):
            assert made.ask(address, code, {}, user=None).code == ResponseCode.NO_PERMISSION
            (line,) = made.lines()
            assert (line["event"], line["server"], line["request"]) == ("refused", server, code.name)
            assert line["reason"] == "protectedMode: for administration, the peer is admitted as client"
            assert line["address"].startswith(f"{LOOPBACK}:")
        made.close()


def test_each_code_that_changes_something_is_audited():
    """Rights to create, change or delete tell which codes do that."""
    rights = RequestRights("C")
    audited = {change.code for change in [*BROKER_CHANGES, *USER_CHANGES, *NAMESRV_CHANGES]}
    body = b'{"clientID":"c","clientId":"c","consumerGroup":"G","topic":"T","topicConfigList":[{"topicName":"T"}]}'
    fields = dict.fromkeys(("topic", "group", "consumerGroup", "groupName", "destGroup", "srcGroup"), "X")
    changes = {Action.CREATE, Action.UPDATE, Action.DELETE}
    needed = {
        code
        for code in served_codes()
        if any(changes.intersection(right.actions) for right in rights.of(code, fields, body))
    }
    assert needed - TRAFFIC - audited == set()
    assert needed | {Code.NOTIFY_MIN_BROKER_ID_CHANGE} >= TRAFFIC
