"""Descriptions of changes for the audit log: bounded, and without secrets."""

from types import SimpleNamespace
from typing import Any

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, Resource
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from rocketbroker.codec.remoting.headers.auth import DeleteAclRequestHeader, UpdateAclRequestHeader
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.common.config import BrokerConfig, TransportConfig
from rocketbroker.processor.support.audited_changes import settings_state, user_changes

ENTRIES = tuple(PolicyEntry(Resource.topic(f"T{number}"), (Action.PUB,), Decision.ALLOW) for number in range(9_900))
STORE: Any = SimpleNamespace(rules=AccessRules(acls={"joe": Acl("joe", ENTRIES)}))


def entries_of(code: Code, header: object, body: bytes = b"") -> Any:
    return user_changes(STORE)[code].state(request(code, header, body))


def test_of_many_entries_those_of_the_request_are_described():
    asked = [PolicyEntryInfo(f"Topic:T{number}", ["Sub"], None, "Allow") for number in (7, 9_000, 20_000)]
    body = AclInfo("User:joe", [PolicyInfo("Custom", asked)]).encode()

    found = entries_of(Code.AUTH_UPDATE_ACL, UpdateAclRequestHeader("User:joe"), body)

    assert [each["entry"]["resource"] for each in found] == ["Topic:T7", "Topic:T9000"]


def test_of_a_request_for_all_or_for_very_many_the_first_hundred_are():
    many = [PolicyEntryInfo(f"Topic:T{number}", ["Sub"], None, "Allow") for number in range(1_000)]
    body = AclInfo("User:joe", [PolicyInfo("Custom", many)]).encode()

    for found in (
        entries_of(Code.AUTH_DELETE_ACL, DeleteAclRequestHeader("User:joe")),
        entries_of(Code.AUTH_UPDATE_ACL, UpdateAclRequestHeader("User:joe"), body),
    ):
        assert len(found) == 101
        assert found[-1] == "9800 more"


def test_one_entry_is_deleted():
    (found,) = entries_of(Code.AUTH_DELETE_ACL, DeleteAclRequestHeader("User:joe", None, "Topic:T5"))
    assert found["entry"]["actions"] == ["Pub"]


def test_stars_stand_for_settings_that_are_secret():
    secret = '{"accessKey":"inner","secretKey":"the-secret"}'
    models = (BrokerConfig(), TransportConfig.model_validate({"innerClientAuthenticationCredentials": secret}))
    body = b"innerClientAuthenticationCredentials=x\ntraceOn=false\nnoSuchSetting=1"

    found = settings_state(models)(request(Code.UPDATE_BROKER_CONFIG, {}, body))

    assert found == {"innerClientAuthenticationCredentials": "******", "traceOn": "true"}


def test_settings_that_cannot_be_read_have_no_state():
    assert settings_state((BrokerConfig(),))(request(Code.UPDATE_BROKER_CONFIG, {}, b"")) is None
