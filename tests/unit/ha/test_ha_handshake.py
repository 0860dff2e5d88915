"""Handshake of master and slave: who proves what, and that nothing of the log goes to anyone else."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from struct import pack

import pytest

from rocketbroker.codec.ha_frames import BrokerIdentity, Introduction
from rocketbroker.common.errors import CodecError
from rocketbroker.ha import ha_client, ha_connection, ha_service, master_link
from rocketbroker.ha.ha_handshake import (
    OPEN,
    PROOF_LENGTH,
    HAAccess,
    HandshakeError,
    MasterHandshake,
    SlaveHandshake,
    WrongProofError,
)
from rocketbroker.ha.master_link import LinkSecurity, MasterLink
from tests.support.apache_ha_port import apache_ha_port
from tests.support.ha_pair import HAMaster, ha_master, ha_slave
from tests.support.ports import LOOPBACK
from tests.support.replicas import fill, log_bytes
from tests.support.waiting import until

KEY, OTHER_KEY = b"k" * 32, b"o" * 32
MASTER = HAAccess(BrokerIdentity("C", "broker-a", 0), KEY, is_required=True)
SLAVE = HAAccess(BrokerIdentity("C", "broker-a", 1), KEY, is_required=True)


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ha_client, "_RETRY_S", 0.05)


def shake(slave: HAAccess, master: HAAccess, size: int = 1 << 20) -> tuple[SlaveHandshake, MasterHandshake]:
    """Carry the bytes of both ends, in pieces."""
    at_slave, at_master = SlaveHandshake(slave), MasterHandshake(master)
    to_master, to_slave = at_slave.introduction, b""
    while to_master or to_slave:
        piece, to_master = to_master[:size], to_master[size:]
        if piece:
            to_slave += at_master.feed(piece)[0]
        piece, to_slave = to_slave[:size], to_slave[size:]
        if piece:
            to_master += at_slave.feed(piece)[0]
    return at_slave, at_master


@pytest.mark.parametrize("size", [1, 13, 1 << 20])
def test_both_prove_what_they_know(size: int):
    slave, master = shake(SLAVE, MASTER, size)
    assert (slave.is_over, master.is_over, master.peer) == (True, True, SLAVE.own)


def test_bytes_after_the_handshake_are_returned():
    slave, master = SlaveHandshake(SLAVE), MasterHandshake(MASTER)
    proof, _ = slave.feed(master.feed(slave.introduction)[0])
    answer, rest = master.feed(proof + pack(">q", 5))
    assert rest == pack(">q", 5)
    assert slave.feed(answer + b"transfer") == (b"", b"transfer")


def test_a_master_that_need_not_be_asked_answers_a_slave_that_asks():
    slave, master = shake(SLAVE, replace(MASTER, is_required=False))
    assert (slave.is_over, master.is_over) == (True, True)


@pytest.mark.parametrize("key", [None, KEY])
def test_without_access_control_the_bytes_are_those_of_apache(key: bytes | None):
    master = MasterHandshake(replace(MASTER, key=key, is_required=False))
    assert master.feed(b"\x00") == (b"", b"\x00")
    assert master.is_over


@pytest.mark.parametrize(
    ("slave", "master", "reason"),
    [
        (SLAVE, replace(MASTER, key=OTHER_KEY), "has other innerClientAuthenticationCredentials than this broker"),
        (SLAVE, replace(MASTER, key=None), "innerClientAuthenticationCredentials is empty here"),
        (replace(SLAVE, key=None), MASTER, "authenticationEnabled=true, and innerClient.* is empty"),
        (
            replace(SLAVE, own=BrokerIdentity("C", "broker-b", 1)),
            MASTER,
            r"it is 'broker-b' \(id 1\) of cluster 'C', and this broker is 'broker-a'",
        ),
        (replace(SLAVE, own=BrokerIdentity("D", "broker-a", 1)), MASTER, "the same brokerClusterName and brokerName"),
        (replace(SLAVE, own=MASTER.own), MASTER, "as is this broker; give each a brokerId"),
    ],
)
def test_what_does_not_fit_is_named(slave: HAAccess, master: HAAccess, reason: str):
    with pytest.raises(HandshakeError, match=reason):
        shake(slave, master)


def test_a_master_without_the_credentials_is_not_believed():
    slave = SlaveHandshake(SLAVE)
    false_master = Introduction(b"n" * 32, MASTER.own)
    proof, _ = slave.feed(false_master.encode())
    with pytest.raises(WrongProofError, match="has other innerClientAuthenticationCredentials than this slave"):
        slave.feed(proof)  # its own one, sent back


def test_a_proof_that_was_overheard_is_of_no_use():
    slave, master = SlaveHandshake(SLAVE), MasterHandshake(MASTER)
    proof, _ = slave.feed(master.feed(slave.introduction)[0])
    again = MasterHandshake(MASTER)
    again.feed(slave.introduction)
    with pytest.raises(WrongProofError):
        again.feed(proof)


def test_each_part_of_the_proof_counts():
    slave, master = Introduction(b"s" * 32, SLAVE.own), Introduction(b"m" * 32, MASTER.own)
    changed: list[Callable[[], bytes]] = [
        lambda: SLAVE.proof(b"master", slave, master),
        lambda: SLAVE.proof(b"slave", slave._replace(nonce=b"x" * 32), master),
        lambda: SLAVE.proof(b"slave", slave, master._replace(nonce=b"x" * 32)),
        lambda: SLAVE.proof(b"slave", slave._replace(broker=BrokerIdentity("C", "broker-a", 2)), master),
        lambda: SLAVE.proof(b"slave", slave._replace(broker=BrokerIdentity("Cb", "roker-a", 1)), master),
        lambda: SLAVE.proof(b"slave", slave, master._replace(broker=BrokerIdentity("C", "broker-b", 0))),
        lambda: replace(SLAVE, key=OTHER_KEY).proof(b"slave", slave, master),
        lambda: SLAVE.proof(b"slave", slave, master),
    ]
    assert len({make() for make in changed}) == len(changed)
    assert {len(make()) for make in changed} == {PROOF_LENGTH}


def test_no_text_has_the_key():
    assert "kkkk" not in repr(MASTER)


async def test_a_slave_that_proves_itself_gets_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    async with ha_master(tmp_path / "m", access=MASTER) as master:
        fill(master.store, "a", 5)
        async with ha_slave(tmp_path / "s", master.address, SLAVE) as slave:
            await until(lambda: slave.replica.max_offset == master.store.commit_log.max_offset)
            fill(master.store, "b", 5)
            master.store.appender.dispatch()
            await until(lambda: slave.replica.max_offset == master.store.commit_log.max_offset)
            assert log_bytes(slave.store) == log_bytes(master.store)
    assert "is 'broker-a' (id 1) of cluster 'C'" in caplog.text


async def first_bytes(master: HAMaster, data: bytes) -> bytes:
    """Send some bytes; return all that come until the connection ends."""
    reader, writer = await asyncio.open_connection(LOOPBACK, master.port)
    writer.write(data)
    try:
        async with asyncio.timeout(10):
            return await reader.read()
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("offset", [0, 5, 1 << 62])
async def test_a_slave_without_proof_gets_no_byte(tmp_path: Path, offset: int, caplog: pytest.LogCaptureFixture):
    async with ha_master(tmp_path / "m", access=MASTER) as master:
        fill(master.store, "a", 5)
        assert await first_bytes(master, pack(">qq", offset, offset)) == b""
        assert master.service.connections == []
    assert "Apache's slaves and those with authenticationEnabled=false do not know the handshake" in caplog.text


async def test_a_wrong_proof_is_reported_and_gets_an_introduction_alone(tmp_path: Path):
    refused: list[tuple[str, HandshakeError]] = []
    access = replace(MASTER, refused=lambda *each: refused.append(each))
    async with ha_master(tmp_path / "m", access=access) as master:
        fill(master.store, "a", 5)
        got = await first_bytes(master, Introduction(b"n" * 32, SLAVE.own).encode() + bytes(PROOF_LENGTH))
        ((address, error),) = refused
        assert address.startswith(f"{LOOPBACK}:")
        assert type(error) is WrongProofError
        found = Introduction.decode(got)
        assert found is None or found[1] == len(got)


async def test_a_slave_with_other_credentials_says_so(tmp_path: Path):
    async with (
        ha_master(tmp_path / "m", access=MASTER) as master,
        ha_slave(tmp_path / "s", master.address, replace(SLAVE, key=OTHER_KEY)) as slave,
    ):
        await until(lambda: "the master has ended the handshake; its log says why" in slave.client.problem)
        assert master.address in slave.client.problem


async def test_a_slave_takes_nothing_from_a_master_of_apache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(master_link, "HANDSHAKE_S", 0.05)
    async with apache_ha_port(b"", 0) as address, ha_slave(tmp_path / "s", address, SLAVE) as slave:
        await until(lambda: "Apache's masters, and those without inner" in slave.client.problem)
        assert slave.replica.max_offset == slave.store.commit_log.min_offset


async def test_a_master_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(master_link, "HANDSHAKE_S", 0.05)

    left = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    server = await asyncio.start_server(say_nothing, LOOPBACK, 0)
    address = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    with pytest.raises(CodecError, match=r"has not answered within 0\.05 s: Apache's masters"):
        await MasterLink.connect(address, 60, LinkSecurity(access=SLAVE))
    await left.wait()
    server.close()


@pytest.mark.parametrize(("access", "data"), [(MASTER, b""), (replace(MASTER, is_required=False), b"\xff")])
async def test_a_slow_slave_is_given_up(
    tmp_path: Path,
    access: HAAccess,
    data: bytes,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    monkeypatch.setattr(ha_connection, "HANDSHAKE_S", 0.05)
    monkeypatch.setattr(ha_service, "TICK_S", 0.02)
    refused: list[str] = []
    access = replace(access, refused=lambda _address, error: refused.append(str(error)))
    async with ha_master(tmp_path / "m", access=access) as master:
        assert await first_bytes(master, data) == b""
    assert refused == ["it has not proved within 0.05 s that it knows innerClientAuthenticationCredentials"]
    assert refused[0] in caplog.text


async def test_a_pair_without_access_control_shakes_no_hands(tmp_path: Path):
    async with ha_master(tmp_path / "m", access=OPEN) as master:
        fill(master.store, "a", 5)
        end = master.store.commit_log.max_offset
        reader, writer = await asyncio.open_connection(LOOPBACK, master.port)
        writer.write(pack(">q", end))
        assert await reader.readexactly(12) == pack(">qi", end, 0)
        writer.close()
