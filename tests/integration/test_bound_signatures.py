"""Signatures bound to connections, from clients to servers that demand them and to those that do not know them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from rocketbroker.client import ClientConfig, Message, Producer, SendFailedError, SessionCredentials, SyncClient
from rocketbroker.codec.remoting.frame import encode_frame
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.testing import RocketMQServer
from tests.integration.test_access_control import PROPERTIES, ROOT
from tests.support.raw_requests import send_fields
from tests.support.signed_client import SignedClient
from tests.support.two_mqadmins import run_ours

BOUND = {**PROPERTIES, "boundSignatureUsers": "*", "autoCreateTopicEnable": "true"}


@pytest.fixture(scope="module")
def mq() -> Iterator[RocketMQServer]:
    # The broker has registered at the name server by bound signatures of its own.
    with RocketMQServer(BOUND) as server:
        yield server


def config(mq: RocketMQServer, *, binds: bool) -> ClientConfig:
    return ClientConfig(mq.namesrv_addr, credentials=SessionCredentials(*ROOT), bind_signatures=binds)


async def test_a_client_that_binds_its_signatures_is_served_and_others_are_not(mq: RocketMQServer):
    async with Producer("PG", config(mq, binds=True)) as producer:
        for number in range(3):
            await producer.send(Message("Bound", b"%d" % number))
    async with Producer("PG", config(mq, binds=False)) as producer:
        with pytest.raises(SendFailedError, match="boundSignatureUsers"):
            await producer.send(Message("Bound", b"x"))
    peer = SignedClient(mq.broker_addr, ROOT)
    answer = await asyncio.to_thread(peer.ask, Code.GET_MAX_OFFSET, {"topic": "Bound", "queueId": "0"})
    peer.client.close()
    assert answer.code == ResponseCode.NO_PERMISSION


def test_sends_that_come_together_have_to_be_bound_as_well(mq: RocketMQServer):
    peer, signer, data = SignedClient(mq.broker_addr, ROOT), RequestSigner(*ROOT), b""
    for opaque in range(1, 65):
        command = request(Code.SEND_MESSAGE_V2, send_fields("TBW102"), b"body")
        signer.sign(command)
        command.opaque = opaque
        data += encode_frame(command)
    for _ in range(4):  # a connection learns templates from what it has decoded
        peer.client.send(data)
        codes = [peer.client.answer(opaque).code for opaque in range(1, 65)]
        assert codes == [ResponseCode.NO_PERMISSION] * 64
    peer.close()


def test_the_client_without_a_loop_binds_them_too(mq: RocketMQServer):
    with SyncClient() as sync:
        producer = sync.open(Producer("PG", config(mq, binds=True)))
        assert sync.call(producer.send(Message("Bound", b"sync"))).msg_id


async def test_a_server_without_access_control_is_served_by_the_same_client():
    with RocketMQServer() as plain:
        async with Producer("PG", config(plain, binds=True)) as producer:
            assert (await producer.send(Message("Plain", b"x"))).msg_id


@pytest.mark.parametrize("where", ["file", "environment"])
def test_mqadmin_binds_them_where_it_is_told(mq: RocketMQServer, tmp_path: Path, monkeypatch, where: str):
    path = tmp_path / "mqadmin.toml"
    path.touch(0o600)
    text = f"[clusters.own]\nnamesrvAddr = '{mq.namesrv_addr}'\naccessKey = '{ROOT[0]}'\nsecretKey = '{ROOT[1]}'\n"
    path.write_text(text + ("bindSignatures = true\n" if where == "file" else ""))
    line = ["--config", str(path), "--cluster", "own", "listUser", "-c", "DefaultCluster"]
    if where == "environment":
        assert "boundSignatureUsers" in run_ours(line).err
        monkeypatch.setenv("ROCKETMQ_BIND_SIGNATURES", "true")
    ran = run_ours(line)
    assert (ran.failed, ROOT[0] in ran.out) == (False, True), ran
