"""Copies of the users of brokers: those sealed for a proxy, and the lists of Apache's brokers."""

from pathlib import Path

import pytest

from rocketbroker.auth.access_copy import AccessCopy, CopiedUsers, users_of_copy, users_of_lists
from rocketbroker.auth.access_store import AccessStore
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.secret_seal import SecretSeal, copy_seal
from rocketbroker.auth.users import User
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketbroker.common.errors import CodecError
from tests.support.fakes import FakeClock
from tests.support.running import running

SEAL = copy_seal("inner", "secret")


async def test_a_copy_has_the_users_of_the_table(tmp_path: Path):
    store = AccessStore(tmp_path / "table", SecretSeal(bytes(32)), FakeClock())
    async with running(store):
        await store.create_user(UserInfo("joe", "joe-secret"))
        body = (await store.copy(SEAL)).encode()

    assert b"joe-secret" not in body
    found = users_of_copy(body, SEAL)
    assert found.users == {"joe": User("joe", "joe-secret")}
    assert found.version > (0, 0)
    with pytest.raises(CodecError, match="sealed by the key"):
        users_of_copy(body, copy_seal("inner", "another"))


def acl(subject: str, *resources: str) -> AclInfo:
    entries = [PolicyEntryInfo(resource, ["Pub"], None, "Allow") for resource in resources]
    return AclInfo(subject, [PolicyInfo("Custom", entries)])


def test_lists_of_apache_leave_out_users_that_are_not_valid_here(caplog: pytest.LogCaptureFixture):
    users = [UserInfo(name, f"{name}-secret", "Normal", "enable") for name in ("ann", "bob", "joe")]
    found = users_of_lists(users, [acl("User:joe", "Topic:T"), acl("User:bob", "Topic:T", "Topic:a*b*")])

    assert sorted(found.users) == ["ann", "joe"]
    assert [str(entry.resource) for entry in found.acls["joe"].custom] == ["Topic:T"]
    assert "a user of the brokers is left out" in caplog.text
    assert "bob-secret" not in caplog.text


def test_listeners_get_published_rules():
    copy, got = AccessCopy(), list[AccessRules]()
    copy.on_change(got.append)
    found = CopiedUsers({"joe": User("joe", "s")}, {})
    assert copy.differs(found)
    copy.publish(AccessRules(found.users, found.acls))
    assert got == [copy.rules]
    assert not copy.differs(found)
