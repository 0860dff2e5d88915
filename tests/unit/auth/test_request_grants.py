"""Questions after the check of a request, by the policies of their moment."""

import weakref

import pytest

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, parse_resource
from rocketbroker.auth.refusals import Refusals
from rocketbroker.auth.request_grants import CheckedRequest, RequestGrants
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.auth.users import User, UserType
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, CodecError
from tests.support.fakes import FakeClock, FakeConnection

JOE = User("joe", "secret")
LOCK = b'{"consumerGroup":"G","clientId":"c","mqSet":[{"topic":"T","brokerName":"b","queueId":0}]}'


class Server:
    """Grants under policies that a test changes."""

    def __init__(self, *, as_apache: bool = False) -> None:
        self.rules = AccessRules()
        self.allow("Topic:T", "Group:G")
        self.refusals = Refusals(FakeClock())
        self.grants = RequestGrants(lambda: self.rules, RequestRights("C", as_apache=as_apache), self.refusals)

    def allow(self, *names: str) -> None:
        entries = tuple(PolicyEntry(parse_resource(name), (Action.SUB,), Decision.ALLOW) for name in names)
        self.rules = AccessRules({"joe": JOE}, {"joe": Acl("joe", entries)}, self.rules)


def checked(body: bytes = LOCK, *, user: User = JOE, asks_right: bool = True) -> CheckedRequest:
    return CheckedRequest(user, Code.LOCK_BATCH_MQ, {}, body, FakeConnection("10.0.0.1:5"), asks_right)


@pytest.mark.parametrize("asks_right", [True, False])
def test_a_grant_has_the_rights_that_were_checked(asks_right: bool):
    server = Server()
    grant = server.grants.grant_of(checked(asks_right=asks_right))
    assert grant.size == (2 if asks_right else 0)
    server.allow("Topic:T")
    if not asks_right:
        grant()
        return
    with pytest.raises(BrokerResponseError, match=r"Group:G from 10\.0\.0\.1") as caught:
        grant()
    assert caught.value.code == ResponseCode.NO_PERMISSION
    assert server.refusals.denied == 1


def test_a_body_is_read_again_only_under_other_policies():
    server = Server()
    ask = server.grants.grant_in_turn(checked(b"{no json", user=User("root", "secret", UserType.SUPER)))
    ask()
    server.allow("Topic:T")
    with pytest.raises(BrokerResponseError) as caught:
        ask()
    assert caught.value.code == ResponseCode.SYSTEM_ERROR
    with pytest.raises(CodecError):
        server.grants.grant_of(checked(b"{no json"))


@pytest.mark.parametrize(("asks_right", "as_apache"), [(True, False), (False, False), (True, True)])
def test_questions_are_answered_with_no_where_rights_count(asks_right: bool, as_apache: bool):
    server = Server(as_apache=as_apache)
    requester = server.grants.requester(checked(asks_right=asks_right), "decoded")
    assert (requester.username, requester.take_body()) == ("joe", "decoded")
    assert requester.may_publish("T") is not (asks_right and not as_apache)


class Fields(dict[str, str]):
    """Fields that a weak reference may name."""


def test_a_requester_keeps_neither_the_fields_nor_the_body_of_its_request():
    server, fields, body = Server(), Fields(topic="T"), memoryview(bytearray(9))
    requester = server.grants.requester(checked()._replace(fields=fields, body=body))
    kept_fields, kept_body = weakref.ref(fields), weakref.ref(body)
    del fields, body
    assert (kept_fields(), kept_body()) == (None, None)
    # A channel keeps this as long as its groups.
    assert requester.may_publish("T") is False
