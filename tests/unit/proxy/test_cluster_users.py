"""The broker whose users count for a proxy, and what happens without it."""

import asyncio
from collections.abc import Collection

import pytest

from rocketbroker.auth.access_copy import AccessCopy
from rocketbroker.auth.access_store import AccessTable, StoredUser
from rocketbroker.auth.secret_seal import copy_seal
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.codec.remoting.bodies.route import BrokerData
from rocketbroker.codec.remoting.headers.auth import ListUsersResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response, to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import RemotingConnectError
from rocketbroker.proxy.cluster_users import ClusterUsers
from tests.support.running import running
from tests.support.waiting import until

SEAL = copy_seal("inner", "secret")


def table(name: str, changed_ms: int) -> bytes:
    users = {name: StoredUser(SEAL.seal(name, "s3cret"), "Normal", "enable")}
    return AccessTable(SEAL.key_id, DataVersion(changed_ms, 1), users).encode()


class Brokers:
    """Brokers by name, each with the table that it answers; ``asked`` are their addresses.

    ``nonce``: the tables have the MAC of an earlier request.
    """

    def __init__(self, *, accepts_unproven: bool = False, **tables: bytes) -> None:
        self.tables = tables
        self.asked: list[str] = []
        self.nonce = ""
        self.copy = AccessCopy()
        config = ProxyConfig(
            user_cache_refresh_seconds=3600, acl_cache_refresh_seconds=3600, accept_unproven_users=accepts_unproven
        )
        self.users = ClusterUsers(self.copy, SEAL, config, self.registered, self.ask)

    async def registered(self) -> Collection[BrokerData]:
        return [BrokerData("C", name, {1: f"{name}:1"}) for name in reversed(self.tables)]

    async def ask(self, address: str, command: Command) -> Command:
        self.asked.append(address)
        assert command.header.copy_key_id == SEAL.key_id
        if not (found := self.tables[address.partition(":")[0]]):
            raise RemotingConnectError(f"connect to {address} failed")
        tag = ListUsersResponseHeader(SEAL.copy_tag(self.nonce or command.header.copy_nonce, found))
        return response(header=to_ext_fields(tag), body=found)

    @property
    def known(self) -> list[str]:
        return sorted(self.copy.rules.users)


async def test_the_first_broker_by_name_is_followed():
    brokers = Brokers(b=table("bob", 2), a=table("ann", 1))
    async with running(brokers.users):
        assert (brokers.known, brokers.users.problem) == (["ann"], "")
        brokers.tables["a"] = table("amy", 2)
        await brokers.users.follow()
        assert brokers.known == ["amy"]
        brokers.tables["a"] = table("old", 1)
        await brokers.users.follow()
        assert brokers.known == ["amy"]
    assert brokers.asked == ["a:1"] * 3


@pytest.mark.parametrize("is_registered", [True, False])
async def test_another_broker_counts_after_the_first_was_silent_for_long(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, is_registered: bool
):
    brokers = Brokers(a=table("ann", 2), b=table("bob", 1))
    async with running(brokers.users):
        if is_registered:
            brokers.tables["a"] = b""
        else:
            del brokers.tables["a"]
        await brokers.users.follow()
        assert (brokers.known, brokers.users.problem) == (["ann"], "")
        assert "users and policies stay those of broker a: broker a: " in caplog.text
        monkeypatch.setattr(brokers.users, "_answered_at", asyncio.get_running_loop().time() - 301)
        await brokers.users.follow()
        assert brokers.known == ["bob"]


async def test_nothing_is_known_before_a_broker_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("rocketbroker.proxy.cluster_users._FIRST_S", 0.01)
    brokers = Brokers(a=b"")
    async with running(brokers.users):
        assert brokers.users.problem == "broker a: connect to a:1 failed"
        brokers.tables["a"] = table("ann", 1)
        known: list[list[str]] = []
        brokers.copy.on_change(lambda _: known.append([brokers.users.problem[:8], *brokers.known]))
        await until(lambda: not brokers.users.problem)
        assert (known, brokers.known) == ([["broker a", "ann"]], ["ann"])


async def test_a_copy_with_the_mac_of_another_request_is_not_taken():
    brokers = Brokers(a=table("ann", 1))
    brokers.nonce = "ab" * 32
    await brokers.users.follow()
    assert "was changed on its way, is an old one" in brokers.users.problem
    assert brokers.known == []


async def test_no_name_server_is_a_problem_and_no_error():
    brokers = Brokers()

    async def registered() -> Collection[BrokerData]:
        raise RemotingConnectError("no name server answers")

    users = ClusterUsers(brokers.copy, SEAL, ProxyConfig(), registered, brokers.ask)
    await users.follow()
    assert users.problem == "no name server answers"
    await brokers.users.follow()
    assert brokers.users.problem == "no broker is registered at the name servers"


async def test_users_of_apaches_brokers_come_by_two_lists():
    bodies = {
        RequestCode.AUTH_LIST_USER: fastjson.dumps([UserInfo("joe", "s3cret", "Normal", "enable")]),
        RequestCode.AUTH_LIST_ACL: fastjson.dumps(
            [AclInfo("User:joe", [PolicyInfo("Custom", [PolicyEntryInfo("Topic:T", ["Pub"], [], "Allow")])])]
        ),
    }

    async def ask(_address: str, command: Command) -> Command:
        return response(body=bodies[RequestCode(command.code)])

    brokers = Brokers(a=b"")
    config = ProxyConfig(accept_unproven_users=True)
    users = ClusterUsers(brokers.copy, SEAL, config, brokers.registered, ask)
    await users.follow()
    assert brokers.copy.rules.users["joe"].secret == "s3cret"
    assert len(brokers.copy.rules.acls["joe"]) == 1


@pytest.mark.parametrize("known", [[], ["ann"]])
async def test_an_answer_without_a_proof_is_not_taken_whether_or_not_it_is_the_first(known: list[str]):
    brokers = Brokers(a=table("ann", 1) if known else b"")
    async with running(brokers.users):
        brokers.users._ask = lambda _address, _command: _answered(fastjson.dumps([UserInfo("eve", "s3cret")]))
        await brokers.users.follow()
        assert brokers.known == known
        assert ("set acceptUnprovenUsers=true" in brokers.users.problem) is not bool(known)


@pytest.mark.parametrize("has_proved", [True, False])
async def test_a_broker_that_has_proved_its_answer_must_do_so_from_then_on(
    caplog: pytest.LogCaptureFixture, *, has_proved: bool
):
    brokers = Brokers(accepts_unproven=True, a=table("ann", 1) if has_proved else b"")
    async with running(brokers.users):
        brokers.users._ask = _answered_in_clear
        await brokers.users.follow()
        assert brokers.known == (["ann"] if has_proved else ["eve"])
        assert ("and earlier ones had: somebody may answer in its place" in caplog.text) is has_proved


async def _answered(body: bytes) -> Command:
    return response(body=body)


async def _answered_in_clear(_address: str, command: Command) -> Command:
    users = [UserInfo("eve", "s3cret", "Normal", "enable")]
    return response(body=fastjson.dumps(users if command.code == RequestCode.AUTH_LIST_USER else []))
