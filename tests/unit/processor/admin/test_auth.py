"""Requests for users and policies: what they change, and whom they refuse."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.auth.access_store import AccessStore, AccessTable
from rocketbroker.auth.authorization import Right
from rocketbroker.auth.errors import AuthorizationError
from rocketbroker.auth.policies import Action, Resource
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.users import User, UserType
from rocketbroker.codec.remoting.headers.auth import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAclRequestHeader,
    UpdateUserRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import request, to_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.auth import AuthRequests
from tests.support.fakes import FakeClock, FakeConnection
from tests.support.processor_calls import call, call_async, refusal, refusal_async

SECRET = "secret-of-joe"
NONCE = "ab" * 32
SUPER = b'{"password":"secret-12","userType":"Super"}'


def policies(*resources: str) -> bytes:
    """Return a body with an entry for each resource."""
    entries = [{"resource": resource, "actions": ["Pub"], "decision": "Allow"} for resource in resources]
    return json.dumps({"policies": [{"policyType": "Custom", "entries": entries}]}).encode()


POLICIES = policies("Topic:T")


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AccessStore]:
    held = AccessStore(tmp_path / "table.json", SecretSeal(bytes(32)), FakeClock())
    await held.start()
    await held.add_missing([User("root", "root-secret", UserType.SUPER), User("joe", SECRET)])
    yield held
    await held.stop()


@pytest.fixture
def family(store: AccessStore) -> AuthRequests:
    return AuthRequests(store)


async def test_a_user_is_created_changed_and_deleted(family: AuthRequests, store: AccessStore):
    body = b'{"password":"secret-of-ann"}'
    assert (await call_async(family.auth_create_user, CreateUserRequestHeader("ann", "joe"), body)).code == 0
    assert store.rules.users["ann"] == User("ann", "secret-of-ann")
    changed = b'{"userStatus":"disable"}'
    assert (await call_async(family.auth_update_user, UpdateUserRequestHeader("ann", "joe"), changed)).code == 0
    assert not store.rules.users["ann"].is_enabled
    assert (await call_async(family.auth_delete_user, DeleteUserRequestHeader("ann", "joe"))).code == 0
    assert "ann" not in store.rules.users
    assert (await call_async(family.auth_delete_user, DeleteUserRequestHeader("ann", "joe"))).code == 0


async def test_only_a_super_user_makes_changes_and_deletes_one(family: AuthRequests, store: AccessStore):
    before = dict(store.rules.users)
    for caller in ("joe", None, "nobody"):
        create, update = CreateUserRequestHeader("new", caller), UpdateUserRequestHeader("joe", caller)
        only = (ResponseCode.SYSTEM_ERROR, "The super user can only be create by super user")
        assert await refusal_async(family.auth_create_user, create, SUPER) == only
        only = (ResponseCode.SYSTEM_ERROR, "The super user can only be update by super user")
        assert await refusal_async(family.auth_update_user, update, b'{"userType":"super"}') == only
        for code, _ in (
            await refusal_async(
                family.auth_update_user, UpdateUserRequestHeader("root", caller), b'{"password":"mine-now"}'
            ),
            await refusal_async(family.auth_delete_user, DeleteUserRequestHeader("root", caller)),
        ):
            assert code == ResponseCode.NO_PERMISSION
    assert dict(store.rules.users) == before
    await call_async(family.auth_create_user, CreateUserRequestHeader("new", "root"), SUPER)
    assert store.rules.users["new"].is_super
    await call_async(family.auth_delete_user, DeleteUserRequestHeader("root", "new"))
    assert "root" not in store.rules.users


@pytest.mark.parametrize(
    ("name", "body", "code", "words"),
    [
        ("", b"{}", ResponseCode.INVALID_PARAMETER, "The username is blank"),
        ("a b", b'{"password":"secret-12"}', ResponseCode.INVALID_PARAMETER, "not allowed"),
        ("ann", b"{}", ResponseCode.INVALID_PARAMETER, "password of user ann"),
        ("ann", b'{"password":"secret-12","userType":"King"}', ResponseCode.INVALID_PARAMETER, "Super or Normal"),
        ("ann", b'{"password":"1234567"}', ResponseCode.INVALID_PARAMETER, "7 characters are too few"),
        ("joe", b'{"password":"secret-12"}', ResponseCode.NO_PERMISSION, "The user is existed"),
        ("ann", b'{"password":"%s"}' % (b"x" * 65_536), ResponseCode.INVALID_PARAMETER, "65,536 bytes exceed"),
        ("ann", b'{"password":"line\\nfeed-12"}', ResponseCode.INVALID_PARAMETER, "character 5 is a control"),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else None,
)
async def test_a_user_that_cannot_be_created_is_named(family, store, name: str, body: bytes, code: int, words: str):
    version = store.data_version
    refused, remark = await refusal_async(family.auth_create_user, CreateUserRequestHeader(name, "root"), body)
    assert (refused, words in remark) == (code, True), remark
    assert store.data_version == version


async def test_an_unknown_user_cannot_be_changed(family: AuthRequests):
    code, remark = await refusal_async(family.auth_update_user, UpdateUserRequestHeader("ann", "root"), b"{}")
    assert (code, remark.startswith("The user is not exist")) == (ResponseCode.NO_PERMISSION, True)


async def test_answers_have_no_secret(family: AuthRequests):
    shown = call(family.auth_get_user, GetUserRequestHeader("joe")).body
    assert shown == {"username": "joe", "userType": "Normal", "userStatus": "enable"}
    listed = (await call_async(family.auth_list_user, ListUsersRequestHeader())).body
    assert [user["username"] for user in json.loads(listed)] == ["joe", "root"]
    assert SECRET.encode() not in listed
    assert b"password" not in listed
    assert (
        json.loads((await call_async(family.auth_list_user, ListUsersRequestHeader("oo"))).body)[0]["username"]
        == "root"
    )


async def test_nothing_found_is_an_empty_body(family: AuthRequests):
    assert call(family.auth_get_user, GetUserRequestHeader("ann")).body == b""
    assert (await call_async(family.auth_list_user, ListUsersRequestHeader("zz"))).body == b""
    assert call(family.auth_get_acl, GetAclRequestHeader("User:joe")).body == b""
    assert call(family.auth_list_acl, ListAclsRequestHeader()).body == b""
    assert refusal(family.auth_get_user, GetUserRequestHeader())[0] == ResponseCode.INVALID_PARAMETER


async def test_policies_are_added_shown_and_deleted(family: AuthRequests, store: AccessStore):
    await call_async(family.auth_create_acl, CreateAclRequestHeader("User:joe"), POLICIES)
    await call_async(
        family.auth_update_acl, UpdateAclRequestHeader("User:joe"), POLICIES.replace(b"Topic:T", b"Topic:U")
    )
    acl = call(family.auth_get_acl, GetAclRequestHeader("User:joe")).body
    assert acl["subject"] == "User:joe"
    assert [entry["resource"] for entry in acl["policies"][0]["entries"]] == ["Topic:T", "Topic:U"]
    listed = json.loads(call(family.auth_list_acl, ListAclsRequestHeader("jo", "Topic:U")).body)
    assert [entry["resource"] for entry in listed[0]["policies"][0]["entries"]] == ["Topic:U"]
    assert call(family.auth_list_acl, ListAclsRequestHeader("ann")).body == b""
    await call_async(family.auth_delete_acl, DeleteAclRequestHeader("User:joe", "Custom", "Topic:T"))
    assert len(store.rules.acls["joe"]) == 1
    await call_async(family.auth_delete_acl, DeleteAclRequestHeader("User:joe"))
    assert "joe" not in store.rules.acls


@pytest.mark.parametrize(
    ("subject", "body", "code", "words"),
    [
        (None, POLICIES, ResponseCode.INVALID_PARAMETER, "subject"),
        ("joe", POLICIES, ResponseCode.INVALID_PARAMETER, "User:"),
        ("User:joe", b"{}", ResponseCode.INVALID_PARAMETER, ""),
        ("User:joe", POLICIES.replace(b"Pub", b"Publish"), ResponseCode.INVALID_PARAMETER, "Publish"),
        ("User:ann", POLICIES, ResponseCode.NO_PERMISSION, "is not exist"),
        (
            "User:joe",
            POLICIES.replace(b"Topic:T", b"Topik:T"),
            ResponseCode.INVALID_PARAMETER,
            "entry 1: resource 'Top",
        ),
        ("User:joe", policies("Topic:T", "Topic:U", "Topic:T"), ResponseCode.INVALID_PARAMETER, "1 and 3 are both for"),
        (
            "User:joe",
            policies(*(f"Topic:T{number}" for number in range(10_001))),
            ResponseCode.INVALID_PARAMETER,
            "10,001 entries exceed the limit of 10,000",
        ),
    ],
    ids=lambda value: value[:30] if isinstance(value, bytes) else None,
)
async def test_policies_that_cannot_be_added_are_named(family, store, subject, body: bytes, code: int, words: str):
    for method, header in (
        (family.auth_create_acl, CreateAclRequestHeader(subject)),
        (family.auth_update_acl, UpdateAclRequestHeader(subject)),
    ):
        refused, remark = await refusal_async(method, header, body)
        assert (refused, words in remark) == (code, True), remark
    assert store.rules.acls == {}


async def test_ten_thousand_policies_are_taken_and_decide(family: AuthRequests, store: AccessStore):
    body = policies(*(f"Topic:T{number}" for number in range(10_000)))
    assert (await call_async(family.auth_create_acl, CreateAclRequestHeader("User:joe"), body)).code == 0
    store.rules.check("joe", [Right(Resource.topic("T9999"), (Action.PUB,))], "10.0.0.1")
    with pytest.raises(AuthorizationError):
        store.rules.check("joe", [Right(Resource.topic("T10000"), (Action.PUB,))], "10.0.0.1")


BROKEN = [
    (b"[]", "Expected `object`, got `array`"),
    (b'["%s"]' % SECRET.encode(), "Expected `object`, got `array`"),
    (b"null", "Expected `object`, got `null`"),
    (b"7", "Expected `object`, got `int`"),
    (b"geheim " + SECRET.encode(), "JSON"),
    (b'{"password":"%s"' % SECRET.encode(), "JSON"),
    (b"\xff\xfe\x00", "JSON"),
    (b"[" * 100_000, "about 100,000"),
    (b'{"policies":{"a":1},"password":{"a":1}}', "got `object`"),
    (b'{"policies":[{"entries":[{"actions":7}]}],"userType":7,"password":[7]}', "Expected"),
    (b'{"policies":[[]],"password":7.5}', ""),
    (b'{a:[' + b"1," * 200_000 + b"1]}", "values"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "words"), BROKEN, ids=lambda value: value[:20] if isinstance(value, bytes) else None)
async def test_a_broken_body_is_refused_with_what_is_wrong(family, store, caplog, body: bytes, words: str):
    version = store.data_version
    for method, header in (
        (family.auth_create_user, CreateUserRequestHeader("ann", "root")),
        (family.auth_update_user, UpdateUserRequestHeader("joe", "root")),
        (family.auth_create_acl, CreateAclRequestHeader("User:joe")),
        (family.auth_update_acl, UpdateAclRequestHeader("User:joe")),
    ):
        code, remark = await refusal_async(method, header, body)
        assert (code, words in remark) == (ResponseCode.INVALID_PARAMETER, True), remark
        assert SECRET not in remark
        assert len(remark) < 500
    assert store.data_version == version
    assert caplog.text == ""


async def test_a_resource_that_is_none_deletes_nothing(family: AuthRequests, store: AccessStore):
    await call_async(family.auth_create_acl, CreateAclRequestHeader("User:joe"), POLICIES)
    code, _ = await refusal_async(family.auth_delete_acl, DeleteAclRequestHeader("User:joe", "Custom", "Tpc:T"))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "joe" in store.rules.acls


async def test_without_access_control_each_request_says_how_to_turn_it_on():
    family = AuthRequests(None)
    for code, remark in (
        await refusal_async(family.auth_create_user, CreateUserRequestHeader("ann"), b"{}"),
        await refusal_async(family.auth_list_user, ListUsersRequestHeader()),
        refusal(family.auth_list_acl, ListAclsRequestHeader()),
    ):
        assert code == ResponseCode.SYSTEM_ERROR
        assert "authenticationEnabled=true" in remark


async def test_a_copy_for_a_slave_has_secrets_that_its_key_alone_opens(store: AccessStore):
    seal = SecretSeal(bytes(range(32)))
    family = AuthRequests(store, seal)
    asked = ListUsersRequestHeader(copy_key_id=seal.key_id, copy_nonce=NONCE, access_key="root")
    answer = await family.auth_list_user(FakeConnection(), request(0, asked))
    body = bytes(answer.body)
    assert to_ext_fields(answer.header) == {"copyTag": seal.copy_tag(NONCE, body)}
    table = AccessTable.decode(body)
    assert seal.open("joe", table.users["joe"].secret) == SECRET
    assert table.data_version == store.data_version


@pytest.mark.parametrize(
    ("key_id", "caller", "code"),
    [("other", "root", ResponseCode.INVALID_PARAMETER), ("", "joe", ResponseCode.NO_PERMISSION)],
    ids=["other credentials", "no Super user"],
)
async def test_a_copy_is_for_servers_with_the_same_credentials(store: AccessStore, key_id: str, caller: str, code: int):
    seal = SecretSeal(bytes(range(32)))
    header = ListUsersRequestHeader(copy_key_id=key_id or seal.key_id, copy_nonce=NONCE, access_key=caller)
    for family in (AuthRequests(store, seal), AuthRequests(store)):
        refused, remark = await refusal_async(family.auth_list_user, header)
        assert refused == code
        assert SECRET not in remark


@pytest.mark.parametrize("nonce", [None, "", "ab" * 31, "ab" * 33])
async def test_a_copy_needs_a_nonce(store: AccessStore, nonce: str | None):
    seal = SecretSeal(bytes(range(32)))
    header = ListUsersRequestHeader(copy_key_id=seal.key_id, copy_nonce=nonce, access_key="root")
    code, remark = await refusal_async(AuthRequests(store, seal).auth_list_user, header)
    assert (code, "send 64 random hexadecimal digits" in remark) == (ResponseCode.INVALID_PARAMETER, True)


async def test_the_last_super_user_is_not_removed(family: AuthRequests):
    for change in (
        refusal_async(family.auth_delete_user, DeleteUserRequestHeader("root", "root")),
        refusal_async(family.auth_update_user, UpdateUserRequestHeader("root", "root"), b'{"userType":"Normal"}'),
    ):
        code, remark = await change
        assert (code, "is the last enabled Super user" in remark) == (ResponseCode.NO_PERMISSION, True)
