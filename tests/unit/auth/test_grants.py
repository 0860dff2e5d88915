"""Rights of held requests and of members, when policies change."""

from collections.abc import Callable, Collection, Mapping

import pytest

from rocketbroker.auth.authorization import AccessRules, Right
from rocketbroker.auth.grants import Grant, Members
from rocketbroker.auth.policies import Acl, Action, Decision, PolicyEntry, Resource, parse_resource
from rocketbroker.auth.users import User, UserStatus, UserType
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection
from tests.support.waiting import turns

JOE, ANN = User("joe", "joe-secret"), User("ann", "ann-secret", UserType.SUPER)
SUB = Right(Resource.topic("T"), (Action.SUB,))
ALLOW = {"joe": Acl("joe", (PolicyEntry(parse_resource("Topic:T"), (Action.SUB,), Decision.ALLOW),))}


class Table:
    """Policies in force, and the rejections."""

    def __init__(self) -> None:
        self.rules = AccessRules({"joe": JOE, "ann": ANN}, ALLOW)
        self.refused: list[str] = []

    def change(self, users: Mapping[str, User], acls: Mapping[str, Acl] = ALLOW) -> None:
        self.rules = AccessRules(users, acls, self.rules)

    def grant(self, user: User = JOE, rights: Collection[Right] = (SUB,)) -> Grant:
        refused = self.refused
        return Grant(user, rights, "127.0.0.1", lambda: self.rules, lambda error: refused.append(str(error)))


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_grant_holds_while_its_user_has_the_right(table: Table):
    grant = table.grant()
    grant()
    table.change({"joe": JOE})
    grant()
    table.change({"joe": User("joe", "joe-secret", UserType.SUPER)}, {})
    grant()
    assert table.refused == []


@pytest.mark.parametrize(
    ("users", "acls", "words"),
    [
        ({"joe": JOE}, {}, "no permission to access Topic:T"),
        ({}, {}, "not found"),
        ({"joe": User("joe", "joe-secret", status=UserStatus.DISABLE)}, ALLOW, "is disabled"),
        ({"joe": User("joe", "another")}, ALLOW, "another secret now"),
    ],
)
def test_a_grant_ends_with_the_right_the_user_or_the_secret(table: Table, users, acls, words: str):
    grant = table.grant()
    table.change(users, acls)
    for _ in range(2):
        with pytest.raises(BrokerResponseError, match=words) as caught:
            grant()
    assert "another" not in caught.value.remark or words == "another secret now"
    assert len(table.refused) == 2


def test_a_super_user_that_is_none_any_more_needs_the_rights_of_the_request(table: Table):
    grant = table.grant(ANN)
    table.change({"ann": User("ann", "ann-secret")})
    with pytest.raises(BrokerResponseError, match="Topic:T"):
        grant()


async def test_a_member_that_lost_its_right_loses_its_connection(table: Table):
    members, joe, ann, gone = Members(), FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2"), FakeConnection()
    members.joined(joe, "g", table.grant())
    members.joined(ann, "g", table.grant(ANN))
    members.joined(gone, "g", table.grant())
    members.on_close(gone)
    table.change({"joe": JOE, "ann": ANN}, {})
    members.ask()
    members.ask()
    await turns(3)
    assert [joe.is_open, ann.is_open, gone.is_open] == [False, True, True]
    assert "Topic:T" in (joe.close_reason or "")
    assert len(members) == 2


async def test_many_members_take_many_turns_of_the_loop(table: Table):
    members = Members()
    connections = [FakeConnection(f"10.0.0.1:{number}") for number in range(1, 1001)]
    for each in connections:
        members.joined(each, "g", table.grant())
    table.change({})
    members.ask()
    await turns(1)
    closed = sum(not each.is_open for each in connections)
    assert 0 < closed < 1000
    await turns(10)
    assert not any(each.is_open for each in connections)


def nothing(_members: Members, _connection: FakeConnection) -> None:
    """Stay in the group."""


@pytest.mark.parametrize(
    ("then", "stays"),
    [
        (nothing, False),
        (lambda members, connection: members.left(connection, ""), False),
        (lambda members, connection: members.left(connection, "h"), False),
        (lambda members, connection: members.stayed(connection, {"g", "h"}), False),
        (lambda members, connection: members.left(connection, "g"), True),
        (lambda members, connection: members.stayed(connection, {"h"}), True),
    ],
)
async def test_a_heartbeat_for_another_group_or_none_takes_nothing_from_those_before(
    table: Table, then: Callable[[Members, FakeConnection], None], stays: bool
):
    members, connection = Members(), FakeConnection()
    members.joined(connection, "g", table.grant())
    members.joined(connection, "h", table.grant(rights=()))
    members.joined(connection, "", table.grant(rights=()))
    then(members, connection)
    table.change({"joe": JOE}, {})
    members.ask()
    await turns(3)
    assert connection.is_open is stays
    table.change({})
    members.ask()
    await turns(3)
    assert not connection.is_open


@pytest.mark.parametrize(("keeps", "stays"), [(True, False), (False, True)])
async def test_a_heartbeat_without_subscriptions_keeps_the_topics_of_the_one_before(
    table: Table, keeps: bool, stays: bool
):
    members, connection = Members(), FakeConnection()
    members.joined(connection, "g", table.grant(), keeps_subscriptions=keeps)
    members.joined(connection, "g", table.grant(rights=()), keeps_subscriptions=keeps)
    table.change({"joe": JOE}, {})
    members.ask()
    await turns(3)
    assert connection.is_open is stays


async def test_a_turn_of_the_loop_is_bounded_in_rights(table: Table):
    members = Members()
    connections = [FakeConnection(f"10.0.0.1:{number}") for number in range(1, 9)]
    for each in connections:
        members.joined(each, "g", table.grant(rights=[SUB] * 200))
    table.change({})
    members.ask()
    await turns(1)
    assert sum(not each.is_open for each in connections) == 2
    await turns(10)
    assert not any(each.is_open for each in connections)
