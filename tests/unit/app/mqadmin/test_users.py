"""Users of access control: passwords that stay hidden, several brokers, and copies."""

import asyncio
import io
from collections.abc import AsyncIterator, Callable

import pytest
import typer
from typer.testing import CliRunner

from rocketbroker.app.mqadmin import users
from rocketbroker.app.mqadmin.cli import app
from rocketbroker.app.mqadmin.users import given_password
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.auth import UserInfo
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.request_family import NO_CHANGES
from tests.support.admin_stage import AdminStage, admin_stage
from tests.support.scripted_server import Script

PASSWORD = "joe-password"


def broker_with(known: dict[str, UserInfo], *, tells: bool = True) -> dict[int, Script]:
    """Return scripts of a broker with users; one that ``tells`` answers passwords, as Apache's does."""

    def shown(user: UserInfo) -> UserInfo:
        return UserInfo(user.username, user.password if tells else None, user.user_type, user.user_status)

    def create(fields: dict[str, str], body: bytes) -> Command:
        if fields["username"] in known:
            return response(ResponseCode.NO_PERMISSION, "The user is existed")
        known[fields["username"]] = UserInfo.decode(body)
        return response()

    def update(fields: dict[str, str], body: bytes) -> Command:
        new, old = UserInfo.decode(body), known[fields["username"]]
        old.password = new.password or old.password
        old.user_type = new.user_type or old.user_type
        old.user_status = new.user_status or old.user_status
        return response()

    def delete(fields: dict[str, str], _body: bytes) -> Command:
        known.pop(fields["username"], None)
        return response()

    def get(fields: dict[str, str], _body: bytes) -> Command:
        user = known.get(fields["username"])
        return response(body=shown(user).encode() if user else b"")

    def listed(fields: dict[str, str], _body: bytes) -> Command:
        found = [shown(user) for name, user in known.items() if fields.get("filter", "") in name]
        return response(body=fastjson.dumps(found) if found else b"")

    return {
        RequestCode.AUTH_CREATE_USER: create,
        RequestCode.AUTH_UPDATE_USER: update,
        RequestCode.AUTH_DELETE_USER: delete,
        RequestCode.AUTH_GET_USER: get,
        RequestCode.AUTH_LIST_USER: listed,
    }


def joe() -> UserInfo:
    return UserInfo("joe", PASSWORD, "Normal", "enable")


@pytest.fixture
def known() -> dict[str, UserInfo]:
    return {"joe": joe()}


@pytest.fixture
async def stage(known: dict[str, UserInfo]) -> AsyncIterator[AdminStage]:
    """Broker-a has a user and tells passwords, broker-b has none and does not tell them."""
    brokers = {"broker-a": broker_with(known), "broker-b": broker_with({}, tells=False)}
    async with admin_stage(brokers) as stage:
        yield stage


async def test_a_change_goes_to_each_broker_of_the_cluster(stage: AdminStage):
    done = await stage.call("createUser", "-c", "DefaultCluster", "-u", "joe", "-p", "other")

    assert (done.code, done.out) == (1, f"create user to {stage.address('broker-b')} success.\n")
    assert done.err == (
        "mqadmin: warning: others can read -p in the list of processes; use --password-stdin\n"
        f"mqadmin: {stage.address()}: CODE: 16 DESC: The user is existed\n"
    )


async def test_a_slave_that_follows_its_master_is_no_failure():
    async def ask(address: str) -> None:
        if address != "a:1":
            raise BrokerResponseError(NO_CHANGES.code, NO_CHANGES.remark)

    report = await users.changed("create user to {} success.", ["a:1", "s:2"], ask, {})
    assert ([*report.parts], [*report.failures]) == (
        ["create user to a:1 success.", "slave s:2 takes it over from its master."],
        [],
    )
    alone = await users.changed("create user to {} success.", ["s:2"], ask, {})
    assert ([*alone.parts], len(alone.failures)) == ([], 1)
    assert "make the change at the master" in alone.failures[0]


async def test_the_password_comes_from_stdin(stage: AdminStage, known: dict[str, UserInfo]):
    words = ["createUser", "-b", stage.address(), "-u", "jill", "-t", "super", "--password-stdin", "-n", stage.namesrv]
    done = await asyncio.to_thread(CliRunner().invoke, app, words, input="two words \nmore")

    assert (done.exit_code, done.stderr) == (0, "")
    assert known["jill"] == UserInfo("jill", "two words ", "Super")


async def test_a_dry_run_hides_the_password(stage: AdminStage, known: dict[str, UserInfo]):
    words = ("-b", stage.address(), "-u", "jill", "-p", PASSWORD, "--dry-run")

    done = await stage.call("createUser", *words)
    assert (PASSWORD in done.out + done.err, "******" in done.out) == (False, True)
    done = await stage.call("updateUser", *words, "--json")
    assert (PASSWORD in done.out + done.err, "******" in done.out) == (False, True)
    assert list(known) == ["joe"]


async def test_an_update_changes_what_is_given(stage: AdminStage, known: dict[str, UserInfo]):
    data = await stage.json("updateUser", "-b", stage.address(), "-u", "joe", "-s", "DISABLE")

    assert (data["userStatus"], data["passwordChanged"]) == ("disable", False)
    assert known["joe"] == UserInfo("joe", PASSWORD, "Normal", "disable")
    done = await stage.call("updateUser", "-b", stage.address(), "-u", "joe")
    assert (done.code, "nothing to change" in " ".join(done.err.split())) == (2, True)


async def test_reads_show_stars_and_name_what_is_not_there(stage: AdminStage):
    done = await stage.call("getUser", "-b", stage.address(), "-u", "joe")
    assert (done.code, done.rows[1]) == (0, ["joe", "******", "Normal", "enable"])

    done = await stage.call("getUser", "-c", "DefaultCluster", "-u", "joe")
    assert (done.code, "broker-b" in done.out, PASSWORD in done.out) == (1, False, False)
    assert done.err == f"mqadmin: {stage.address('broker-b')}: there is no user joe; listUser shows all\n"

    assert (await stage.json("listUser", "-c", "DefaultCluster"))["brokers"] == [
        {
            "addr": stage.address(),
            "users": [{"username": "joe", "userType": "Normal", "userStatus": "enable"}],
            "error": None,
        },
        {"addr": stage.address("broker-b"), "users": [], "error": None},
    ]


async def test_a_delete_reports_the_brokers(stage: AdminStage, known: dict[str, UserInfo]):
    data = await stage.json("deleteUser", "-b", stage.address(), "-u", "joe", "--yes")

    assert (data, known) == ({"username": "joe", "brokers": [stage.address()]}, {})


async def test_a_copy_says_what_it_cannot_copy(stage: AdminStage, known: dict[str, UserInfo]):
    first, second = stage.address(), stage.address("broker-b")
    data = await stage.json("copyUser", "-f", first, "-t", second)
    assert data["users"] == ["joe"]

    done = await stage.call("copyUser", "-f", second, "-t", first, "-u", "joe,nobody")
    assert done.out == (
        f"copy user of joe from {second} to {first} success. {second} does not tell passwords, so that of {first} "
        "stays.\n"
    )
    assert (done.code, done.err) == (1, f"mqadmin: user nobody: {second} has no such user\n")
    assert known["joe"] == joe()
    known.clear()
    done = await stage.call("copyUser", "-f", second, "-t", first)
    assert (done.code, f"run mqadmin createUser -b {first} -u joe -t Normal" in done.err) == (1, True)
    assert known == {}


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("createUser", "-u", "joe", "-p", "x"), "give either -b (one broker) or -c"),
        (("createUser", "-u", "joe", "-b", "b:1", "-c", "C", "-p", "x"), "give either -b (one broker) or -c"),
        (("createUser", "-u", "a,b", "-b", "b:1", "-p", "x"), "',' is not allowed"),
        (("createUser", "-u", "joe", "-b", "b:1"), "pipe it in with --password-stdin"),
        (("createUser", "-u", "joe", "-b", "b:1", "-p", " "), "it is blank"),
        (("createUser", "-u", "joe", "-b", "b:1", "-p", "hidden\x01"), "a control character"),
        (("createUser", "-u", "joe", "-b", "b:1", "-p", "hidden", "--password-stdin"), "give either -p or"),
        (("createUser", "-u", "joe", "-b", "b:1", "-t", "Root"), "'normal', 'super'"),
        (("listUser",), "give either -b (one broker) or -c"),
        (("copyUser", "-f", "a:1", "-t", "b:1", "-u", " , "), "-u has no name"),
    ],
)
async def test_what_is_wrong_is_named_without_the_password(stage: AdminStage, words: tuple[str, ...], fault: str):
    done = await stage.call(*words)

    text = " ".join(done.err.replace("│", " ").split())
    assert (done.code, fault in text) == (2, True), text
    assert "hidden" not in done.out + done.err


# -- the terminal


class Terminal(io.StringIO):
    """Input of a person."""

    def isatty(self) -> bool:
        """It is a terminal."""
        return True


def typing(*answers: str | EOFError) -> Callable[[str], str]:
    left = list(answers)

    def ask(_question: str) -> str:
        answer = left.pop(0)
        if isinstance(answer, EOFError):
            raise answer
        return answer

    return ask


def test_a_terminal_is_asked_twice(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(users, "ask_hidden", typing(PASSWORD, PASSWORD))

    assert given_password("joe", None, from_stdin=False, ask=True) == PASSWORD


@pytest.mark.parametrize(
    ("answers", "fault"),
    [((PASSWORD, "other"), "the two passwords differ"), ((EOFError(),), "ended before the password")],
)
def test_two_answers_that_differ_change_nothing(
    monkeypatch: pytest.MonkeyPatch, answers: tuple[str | EOFError, ...], fault: str
):
    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr(users, "ask_hidden", typing(*answers))

    with pytest.raises(typer.BadParameter, match=fault) as raised:
        given_password("joe", None, from_stdin=False, ask=True)
    assert PASSWORD not in str(raised.value)


def test_nothing_is_asked_without_need():
    assert given_password("joe", None, from_stdin=False, ask=False) is None
