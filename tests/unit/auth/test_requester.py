"""Questions about what a request has found: by the policies of the moment, and without a name that tells more."""

import pytest

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.errors import AuthorizationError
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, parse_resource
from rocketbroker.auth.requester import Requester
from rocketbroker.auth.users import User
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

GET, SUB = (Action.GET,), (Action.SUB,)


class Asked:
    """A requester whose policies a test sets."""

    def __init__(self, *rights: tuple[str, Action]) -> None:
        self.set(*rights)
        self.logged: list[str] = []
        self.requester = Requester("joe", "10.0.0.1", "C", lambda: self.rules, self._log)

    def set(self, *rights: tuple[str, Action]) -> None:
        entries = (PolicyEntry(parse_resource(name), (action,), Decision.ALLOW) for name, action in rights)
        self.rules = AccessRules({"joe": User("joe", "secret")}, {"joe": Acl("joe", tuple(entries))})

    def _log(self, error: AuthorizationError) -> None:
        self.logged.append(str(error))

    def refusal(self, topics: list[str], actions: tuple[Action, ...], group: str = "") -> str:
        with pytest.raises(BrokerResponseError) as caught:
            self.requester.check("the message", topics, actions, group)
        assert caught.value.code == ResponseCode.NO_PERMISSION
        return caught.value.remark


def test_a_right_on_one_of_the_topics_is_enough():
    asked = Asked(("Topic:T", Action.GET))
    asked.requester.check("the message", ["T"], GET)
    asked.requester.check("the message", ["SCHEDULE_TOPIC_XXXX", "T"], GET)
    asked.requester.check("the message", ["%RETRY%G", "T"], GET)
    assert asked.logged == []
    assert "has no permission to access the message from 10.0.0.1. It needs Sub on" in asked.refusal(["T"], SUB)


def test_the_user_does_not_learn_the_topic_and_the_log_does():
    asked = Asked()
    assert "Orders" not in asked.refusal(["SCHEDULE_TOPIC_XXXX", "Orders"], GET)
    (line,) = asked.logged
    assert "User:joe has no permission to access Topic:Orders from 10.0.0.1" in line
    assert "mqadmin createAcl" in line


def test_the_own_retry_topic_needs_no_right_more():
    asked = Asked()
    asked.requester.check("the message", ["%RETRY%G"], SUB, "G")
    asked.refusal(["%RETRY%H"], SUB, "G")
    asked.refusal(["%RETRY%G+T"], SUB, "G")
    asked.set(("Topic:T", Action.SUB))
    asked.requester.check("the message", ["%RETRY%G+T"], SUB, "G")


def test_policies_of_the_moment_decide():
    asked = Asked(("Topic:T", Action.PUB))
    assert asked.requester.may_publish("T")
    assert not asked.requester.may_publish("U")
    asked.set()
    assert not asked.requester.may_publish("T")
    asked.rules = AccessRules()
    assert not asked.requester.may_publish("T")
    assert asked.logged == []


def test_something_without_a_topic_is_a_mistake():
    with pytest.raises(ValueError, match="the message has no topic"):
        Asked().requester.check("the message", [], GET)
