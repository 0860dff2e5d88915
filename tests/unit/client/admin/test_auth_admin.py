"""Requests about users and policies, and the answers of both kinds of brokers."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.scripted_server import Script, ScriptedServer

ACL = AclInfo("User:joe", [PolicyInfo("Custom", [PolicyEntryInfo("Topic:T", ["Pub"], ["10.0.0.0/8"], "Allow")])])
USER = UserInfo("joe", "joe-password", "Super", "disable")


def of_name(fields: dict[str, str], _body: bytes) -> Command:
    return response(body=USER.encode() if fields["username"] == "joe" else b"")


def of_subject(fields: dict[str, str], _body: bytes) -> Command:
    return response(body=ACL.encode() if fields["subject"] == "User:joe" else b"null")


def done(_fields: dict[str, str], _body: bytes) -> Command:
    return response()


SCRIPTS: dict[int, Script] = {
    **dict.fromkeys((*range(3001, 3004), *range(3006, 3009)), done),
    RequestCode.AUTH_GET_USER: of_name,
    RequestCode.AUTH_LIST_USER: lambda fields, _body: response(
        body=b'[{"username":"joe"}]' if fields.get("filter") == "jo" else b""
    ),
    RequestCode.AUTH_GET_ACL: of_subject,
    RequestCode.AUTH_LIST_ACL: lambda fields, _body: response(body=b"[" + ACL.encode() + b"]" if fields else b"[]"),
}


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with ScriptedServer(dict(SCRIPTS)) as server:
        yield server


async def test_a_change_carries_name_and_body(server: ScriptedServer):
    async with AdminClient("127.0.0.1:1") as admin:
        await admin.create_user(server.address, USER)
        await admin.update_user(server.address, UserInfo("joe", user_status="enable"))
        await admin.delete_user(server.address, "joe")
        await admin.create_acl(server.address, ACL)
        await admin.update_acl(server.address, ACL)
        await admin.delete_acl(server.address, "User:joe")
        await admin.delete_acl(server.address, "User:joe", "Topic:T")

    found = [(each.code, each.fields, each.body) for each in server.asked]
    assert [code for code, _, _ in found] == [3001, 3002, 3003, 3006, 3007, 3008, 3008]
    assert [fields for _, fields, _ in found] == [
        *[{"username": "joe"}] * 3,
        *[{"subject": "User:joe"}] * 3,
        {"subject": "User:joe", "resource": "Topic:T"},
    ]
    assert UserInfo.decode(found[0][2]) == USER
    assert UserInfo.decode(found[1][2]) == UserInfo("joe", user_status="enable")
    assert [AclInfo.decode(body) for _, _, body in found[3:5]] == [ACL, ACL]


async def test_an_empty_answer_is_no_user_and_no_policies(server: ScriptedServer):
    async with AdminClient("127.0.0.1:1") as admin:
        assert await admin.get_user(server.address, "joe") == USER
        assert await admin.get_user(server.address, "jill") is None
        assert await admin.list_user(server.address, "jo") == [UserInfo("joe")]
        assert await admin.list_user(server.address) == []
        assert await admin.get_acl(server.address, "User:joe") == ACL
        assert await admin.get_acl(server.address, "User:jill") is None
        assert await admin.list_acl(server.address, "joe", "T") == [ACL]
        assert await admin.list_acl(server.address) == []


@pytest.mark.parametrize(("remark", "hinted"), [("The user is existed", False), ("User:joe has no permission", True)])
async def test_a_user_that_exists_is_no_question_of_permission(remark: str, hinted: bool):
    script: Script = lambda _fields, _body: response(ResponseCode.NO_PERMISSION, remark)  # noqa: E731
    async with ScriptedServer({3001: script}) as server, AdminClient("127.0.0.1:1") as admin:
        with pytest.raises(BrokerResponseError, match=remark) as raised:
            await admin.create_user(server.address, USER)

    assert ("check credentials" in "; ".join([str(raised.value), *getattr(raised.value, "__notes__", ())])) == hinted
