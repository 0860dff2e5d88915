"""Policies of access control: what is sent, shown and refused before it is sent."""

from collections.abc import AsyncIterator

import pytest

from rocketbroker.app.mqadmin.policies import delete_question
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.admin_stage import AdminStage, admin_stage
from tests.support.scripted_server import Script

ENTRIES = [
    PolicyEntryInfo("Topic:T", ["Pub", "Sub"], ["10.0.0.0/8"], "Allow"),
    PolicyEntryInfo("Group:G", ["Sub"], None, "Deny"),
]
JOE = AclInfo("User:joe", [PolicyInfo("Custom", ENTRIES)])
JILL = AclInfo("User:jill", None)
CREATE = ("-s", "User:joe", "-r", "Topic:T,Group:G*", "-a", "Pub,Sub", "-d", "allow", "-i", "10.0.0.0/8,::1")


def ok(_fields: dict[str, str], _body: bytes) -> Command:
    return response()


def broker_a() -> dict[int, Script]:
    return {
        **dict.fromkeys((3006, 3007, 3008), ok),
        RequestCode.AUTH_GET_ACL: lambda fields, _body: response(
            body=JOE.encode() if fields["subject"] == "User:joe" else b""
        ),
        RequestCode.AUTH_LIST_ACL: lambda _fields, _body: response(
            body=b"[" + JOE.encode() + b"," + JILL.encode() + b"]"
        ),
    }


def broker_b() -> dict[int, Script]:
    no_user: Script = lambda fields, _body: response(  # noqa: E731
        ResponseCode.NO_PERMISSION, f"The subject of {fields['subject']} is not exist."
    )
    nobody: Script = lambda _fields, _body: response(body=b"")  # noqa: E731
    return {RequestCode.AUTH_GET_ACL: nobody, RequestCode.AUTH_LIST_ACL: nobody, 3006: no_user, 3007: no_user}


@pytest.fixture
async def stage() -> AsyncIterator[AdminStage]:
    """Broker-a has policies, broker-b has none and no user."""
    async with admin_stage({"broker-a": broker_a(), "broker-b": broker_b()}) as stage:
        yield stage


@pytest.mark.parametrize(("name", "code"), [("createAcl", 3006), ("updateAcl", 3007)])
async def test_an_entry_is_sent_for_each_resource(stage: AdminStage, name: str, code: int):
    data = await stage.json(name, "-b", stage.address(), *CREATE)

    (asked,) = stage.brokers["broker-a"].of(code)
    entry = {"actions": ["Pub", "Sub"], "sourceIps": ["10.0.0.0/8", "::1"], "decision": "Allow"}
    assert asked.fields == {"subject": "User:joe"}
    entries = [
        PolicyEntryInfo(each, ["Pub", "Sub"], ["10.0.0.0/8", "::1"], "Allow") for each in ("Topic:T", "Group:G*")
    ]
    assert AclInfo.decode(asked.body).policies == [PolicyInfo(None, entries)]
    assert data["policies"][0]["entries"] == [{"resource": each, **entry} for each in ("Topic:T", "Group:G*")]
    assert data["brokers"] == [stage.address()]


async def test_brokers_that_fail_are_named(stage: AdminStage):
    done = await stage.call("createAcl", "-c", "DefaultCluster", *CREATE)

    assert (done.code, done.out) == (1, f"create acl to {stage.address()} success.\n")
    assert done.err == f"mqadmin: {stage.address('broker-b')}: CODE: 16 DESC: The subject of User:joe is not exist.\n"


async def test_reads_show_a_line_for_each_entry(stage: AdminStage):
    done = await stage.call("getAcl", "-b", stage.address(), "-s", "User:joe")
    assert (done.code, done.rows[1:]) == (
        0,
        [
            ["User:joe", "Custom", "Topic:T", "[Pub,", "Sub]", "[10.0.0.0/8]", "Allow"],
            ["User:joe", "Custom", "Group:G", "[Sub]", "null", "Deny"],
        ],
    )
    done = await stage.call("getAcl", "-c", "DefaultCluster", "-s", "User:joe")
    assert done.err == f"mqadmin: {stage.address('broker-b')}: User:joe has no policies; listAcl shows all\n"
    assert (done.code, f"# {stage.address()}" in done.out) == (1, True)

    done = await stage.call("listAcl", "-b", stage.address(), "-s", "j", "-r", "T")
    assert [row[0] for row in done.rows] == ["#Subject", "User:jill", "User:joe", "User:joe"]
    (asked,) = stage.brokers["broker-a"].of(RequestCode.AUTH_LIST_ACL)
    assert asked.fields == {"subjectFilter": "j", "resourceFilter": "T"}
    data = await stage.json("listAcl", "-c", "DefaultCluster")
    assert [len(each["acls"]) for each in data["brokers"]] == [2, 0]


async def test_each_resource_is_deleted_or_all(stage: AdminStage):
    await stage.json("deleteAcl", "-b", stage.address(), "-s", "User:joe", "-r", "Topic:T, Group:G", "--yes")
    data = await stage.json("deleteAcl", "-b", stage.address(), "-s", "User:joe", "--yes")

    assert data == {"subject": "User:joe", "resources": None, "brokers": [stage.address()]}
    assert [each.fields for each in stage.brokers["broker-a"].of(3008)] == [
        {"subject": "User:joe", "resource": "Topic:T"},
        {"subject": "User:joe", "resource": "Group:G"},
        {"subject": "User:joe"},
    ]


async def test_a_copy_creates_or_adds_and_names_users_that_are_missing(stage: AdminStage):
    first, second = stage.address(), stage.address("broker-b")
    data = await stage.json("copyAcl", "-f", first, "-t", first, "-s", "User:joe")
    assert data["subjects"] == ["User:joe"]
    assert [AclInfo.decode(each.body) for each in stage.brokers["broker-a"].of(3007)] == [JOE]

    done = await stage.call("copyAcl", "-f", first, "-t", second)
    assert (done.code, done.out) == (1, "")
    assert "User:joe: CODE: 16 DESC: The subject of User:joe is not exist.; answered by" in done.err
    assert "by copyUser" in done.err
    assert f"User:jill: it has no policies on {first}" in done.err


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("createAcl", "-s", "joe", *CREATE[2:]), "give User:<name>"),
        (("createAcl", *CREATE[:2], "-r", "Topics:T", *CREATE[4:]), "begin it with Cluster:, Namespace:, Topic: or"),
        (("createAcl", *CREATE[:2], "-r", " , ", *CREATE[4:]), "-r has no name"),
        (("createAcl", *CREATE[:4], "-a", "Write", *CREATE[6:]), "action 'Write' is unknown"),
        (("createAcl", *CREATE[:6], "-d", "Perhaps"), "'allow', 'deny'"),
        (("createAcl", *CREATE[:8], "-i", "10.0.0.300"), "is not an address or a network"),
        (("deleteAcl", "-s", "User:joe", "-r", "Topics:T"), "begin it with Cluster:, Namespace:, Topic: or"),
        (("deleteAcl", "-s", "joe"), "give User: and the name of a user"),
        (("getAcl", "-s", "User: "), "give User: and the name of a user"),
    ],
)
async def test_what_no_broker_knows_is_not_sent(stage: AdminStage, words: tuple[str, ...], fault: str):
    done = await stage.call(*words, "-b", stage.address())

    text = " ".join(done.err.replace("│", " ").split())
    assert (done.code, fault in text) == (2, True), text
    assert stage.brokers["broker-a"].asked == []


def test_the_question_says_what_is_deleted():
    assert delete_question("User:joe", None) == "Delete all policies of User:joe?"
    assert delete_question("User:joe", "Topic:T") == "Delete the policies for Topic:T of User:joe?"
