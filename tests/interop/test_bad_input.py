"""Malformed input against running servers: the sender gets the reason, and no other peer is affected."""

import contextlib
import json
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.our_servers import Cluster, OurServers
from tests.support.raw_client import RawAnswer, RawClient, raw_frame, raw_header
from tests.support.raw_requests import (
    SUCCESS,
    consumer_data,
    everything,
    pull_fields,
    refused,
    send_fields,
    send_v1_fields,
    topic_fields,
)
from tests.support.waiting import wait_until

SEND_V2, PULL, HEART_BEAT, MAX_OFFSET, ROUTE, REGISTER = 310, 11, 34, 30, 105, 103
QUERY, VIEW, LOCK_BATCH, SEND_MSG_BACK = 12, 33, 41, 36
SUBSCRIPTION_GROUP_NOT_EXIST, CONSUMER_NOT_ONLINE = 26, 206
MESSAGE_ILLEGAL = 13
FRAME_MAX = 16 << 20


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurServers]:
    started = OurServers(tmp_path_factory.mktemp("ours"))
    yield started
    started.close()


@pytest.fixture(scope="module")
def shared(servers: OurServers) -> Cluster:
    namesrv = servers.namesrv()
    return Cluster(namesrv, servers.broker(namesrv.address))


@pytest.fixture
def bystander(shared: Cluster) -> Iterator[RawClient]:
    """A client of the broker that does nothing wrong; it must be served afterwards, and find what it stored before."""
    with RawClient(shared.broker.address) as client:
        sent = client.ask(SEND_V2, send_fields("Bystander"), b"safe")
        assert sent.code == SUCCESS, sent
        yield client
        found = client.ask(PULL, pull_fields("Bystander", int(sent.fields["queueOffset"])), opaque=2)
        assert (found.code, b"safe" in found.body) == (SUCCESS, True), found
        assert client.ask(SEND_V2, send_fields("Bystander"), b"again", opaque=3).code == SUCCESS


@pytest.fixture
def peer(shared: Cluster, bystander: RawClient) -> Iterator[RawClient]:
    """The one that misbehaves."""
    with RawClient(shared.broker.address) as client:
        yield client


# -- frames


@pytest.mark.parametrize("server", ["namesrv", "broker"])
@pytest.mark.parametrize(
    ("length", "named"),
    [(FRAME_MAX + 1, "16777216"), (2**31 - 1, "2147483647"), (-1, "-1"), (-(2**31), "-2147483648"), (3, "3"), (0, "0")],
)
def test_an_impossible_length_ends_that_connection_alone(
    shared: Cluster, bystander: RawClient, server: str, length: int, named: str
):
    target = shared.namesrv if server == "namesrv" else shared.broker
    with RawClient(target.address) as peer:
        peer.send(struct.pack(">iI", length, 10) + b"x" * 64)
        answer = peer.read()
        if answer is not None:
            refused(answer, named)
            assert peer.read() is None
    wait_until(
        lambda: any("frame length" in line and named in line for line in target.lines()), "the log names the length"
    )


def test_announced_bytes_are_not_allocated_before_they_arrive(shared: Cluster, bystander: RawClient):
    before = shared.broker.rss_bytes()
    with contextlib.ExitStack() as held:
        for _ in range(60):
            peer = held.enter_context(RawClient(shared.broker.address))
            peer.send(struct.pack(">iI", FRAME_MAX, 100) + b"{")
        # Served after all of them: what they announced has been read.
        with RawClient(shared.broker.address) as other:
            assert other.ask(SEND_V2, send_fields("Bystander"), b"x").code == SUCCESS
        assert shared.broker.rss_bytes() - before < 40 << 20, "60 frames of 16 MiB were announced, 9 bytes sent of each"


@pytest.mark.parametrize("code", [PULL, VIEW, QUERY])
def test_memory_stays_bounded_when_a_peer_never_reads_its_answers(shared: Cluster, bystander: RawClient, code: int):
    sent = bystander.ask(SEND_V2, send_fields("Big"), os.urandom(200_000), opaque=8)
    assert sent.code == SUCCESS
    fields = {
        PULL: pull_fields("Big"),
        VIEW: {"offset": str(int(sent.fields["msgId"][16:], 16))},
        QUERY: {"topic": "Big", "key": "0" * 32, "maxNum": "1", "beginTimestamp": "0", "endTimestamp": str(2**62)},
    }[code]
    with RawClient(shared.broker.address) as other:
        assert len(other.ask(code, fields).body) > 200_000, "the answers that are not read are large"
    before = shared.broker.rss_bytes()
    frame = raw_frame(raw_header(code, fields))
    with RawClient(shared.broker.address) as peer:
        peer._socket.settimeout(1.0)
        with contextlib.suppress(TimeoutError):
            for _ in range(200):
                peer.send(frame * 50)
        grown = shared.broker.rss_bytes() - before
    assert grown < 64 << 20, f"10,000 answers of 200 kB were asked for and none read: {grown} bytes more"


@pytest.mark.parametrize(
    "frame",
    [
        raw_frame(b'{"code":310,"opaque":1,'),
        raw_frame(b"\xff\xfe\x00 not JSON"),
        raw_frame(b"[]"),
        raw_frame(b""),
        raw_frame(b'{"code":"many","opaque":1,"flag":0}'),
        raw_frame(raw_header(SEND_V2), mark=0x00FFFFFF),
        raw_frame(raw_header(SEND_V2), mark=0x7F000010),
        raw_frame(b"\x00\x01\x02", mark=0x01000003),
        raw_frame(raw_header(SEND_V2, {"a": []})),
        raw_frame(raw_header(SEND_V2, {"a": {"b": {}}})),
        raw_frame(b'{"extFields":' * 100_000),
    ],
    ids=[
        "cut",
        "bytes",
        "array",
        "empty",
        "code",
        "header length",
        "encoding",
        "binary",
        "list field",
        "object field",
        "deep",
    ],
)
@pytest.mark.parametrize("server", ["namesrv", "broker"])
def test_a_broken_header_is_answered_or_ends_that_connection(
    shared: Cluster, bystander: RawClient, server: str, frame: bytes
):
    target = shared.namesrv if server == "namesrv" else shared.broker
    logged = len(target.lines())
    with RawClient(target.address) as peer:
        peer.send(frame)
        answer = peer.read()
        if answer is None:
            wait_until(lambda: any("header" in line for line in target.lines()[logged:]), "the log says why")
        else:
            refused(answer)
            assert answer.remark


# -- requests


@pytest.mark.parametrize("code", [9999, 0, -5, 2**31 - 1])
def test_an_unknown_code_is_named(shared: Cluster, peer: RawClient, code: int):
    refused(peer.ask(code), str(code), "not supported")
    with RawClient(shared.namesrv.address) as other:
        refused(other.ask(code), str(code), "not supported")
    assert peer.ask(SEND_V2, send_fields("Bystander"), b"x", opaque=2).code == SUCCESS, "the connection goes on"


def test_a_missing_field_is_named(shared: Cluster, peer: RawClient):
    fields = send_fields("Bystander")
    del fields["b"]
    refused(peer.ask(SEND_V2, fields, b"x"), "b")
    refused(peer.ask(MAX_OFFSET, {"topic": "Bystander"}), "queueId")
    refused(peer.ask(PULL, {}), "consumerGroup")
    refused(peer.ask(PULL, None), "consumerGroup")
    with RawClient(shared.namesrv.address) as other:
        refused(other.ask(ROUTE, {}), "topic")
        refused(other.ask(REGISTER, {"brokerName": "b"}), "brokerAddr")


@pytest.mark.parametrize("value", ["many", "", "1.5", str(2**63), "0x10", "１", None, True])  # noqa: RUF001
def test_a_mistyped_field_is_named_with_its_value(peer: RawClient, value: Any):
    answer = peer.ask(MAX_OFFSET, {"topic": "Bystander", "queueId": value})
    refused(answer, "queueId")
    assert peer.ask(MAX_OFFSET, {"topic": "Bystander", "queueId": "0"}, opaque=2).code == SUCCESS


ILLEGAL_NAMES = ["../x", "../../etc/x", "a/b", "", " ", "a b", "a\x00b", "té", "..", "x" * 300]


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_an_invalid_topic_name_creates_no_file(shared: Cluster, peer: RawClient, name: str):
    before = everything(shared.broker.store)
    refused(peer.ask(SEND_V2, send_fields(name), b"x"))
    refused(peer.ask(10, send_v1_fields(name), b"x", opaque=2))
    refused(peer.ask(PULL, pull_fields(name), opaque=3))
    refused(peer.ask(17, topic_fields(name), opaque=4))
    refused(peer.ask(215, {"topic": name}, opaque=5))
    for code in (MAX_OFFSET, 31, 32):
        answer = peer.ask(code, {"topic": name, "queueId": "0"}, opaque=6)
        assert answer.code != SUCCESS or int(next(iter(answer.fields.values()))) <= 0, answer
    assert everything(shared.broker.store) == before
    with RawClient(shared.namesrv.address) as other:
        assert other.ask(ROUTE, {"topic": name}).code == 17


@pytest.mark.parametrize("name", ILLEGAL_NAMES)
def test_an_invalid_group_name_is_rejected(shared: Cluster, peer: RawClient, name: str):
    before = everything(shared.broker.store)
    refused(peer.ask(PULL, pull_fields("Bystander", consumerGroup=name)))
    body = json.dumps({"groupName": name, "consumeEnable": True}).encode()
    refused(peer.ask(200, None, body, opaque=2))
    commit = {"consumerGroup": name, "topic": "Bystander", "queueId": "0", "commitOffset": "1"}
    refused(peer.ask(15, commit, opaque=3))
    beat = {"clientID": "bad", "producerDataSet": [], "consumerDataSet": [consumer_data(name)]}
    peer.ask(HEART_BEAT, None, json.dumps(beat).encode(), opaque=4)
    groups = peer.ask(201, {"groupSeq": "0"}, opaque=5)
    assert name not in json.loads(groups.body)["subscriptionGroupTable"]
    topics = json.loads(peer.ask(21, {"topicSeq": "0"}, opaque=6).body)["topicConfigTable"]
    assert f"%RETRY%{name}" not in topics
    assert everything(shared.broker.store) == before


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b'{"clientID":5}', b'{"consumerDataSet":"x"}', b"null"])
def test_a_broken_heartbeat_is_rejected(peer: RawClient, body: bytes):
    refused(peer.ask(HEART_BEAT, None, body))
    assert peer.ask(SEND_V2, send_fields("Bystander"), b"x", opaque=2).code == SUCCESS


def test_a_body_over_the_limit_is_rejected_with_the_limit(peer: RawClient):
    refused(peer.ask(SEND_V2, send_fields("Bystander"), bytes(4 * 1024 * 1024 + 1)), "4,194,304")
    assert peer.ask(SEND_V2, send_fields("Bystander"), bytes(4 * 1024 * 1024), opaque=2).code == SUCCESS


def test_properties_over_the_limit_are_rejected_with_the_limit(peer: RawClient):
    answer = peer.ask(SEND_V2, send_fields("Bystander", i="k\x01" + "v" * 32_768 + "\x02"), b"x")
    assert answer.code == MESSAGE_ILLEGAL
    refused(answer, "31,743")


@pytest.mark.proves(
    "Request and reply, batches, types of messages",
    "a batch that is delayed, a retry or broken is rejected",
)
@pytest.mark.parametrize(
    "body",
    [b"", b"x", struct.pack(">i", 2**31 - 1) + b"x" * 40, struct.pack(">i", -1) * 8, struct.pack(">i", 0) * 8],
    ids=["empty", "short", "long", "negative", "zero"],
)
def test_a_broken_batch_is_rejected(peer: RawClient, body: bytes):
    before = peer.ask(MAX_OFFSET, {"topic": "Bystander", "queueId": "0"}).fields["offset"]
    refused(peer.ask(320, send_fields("Bystander", m="true"), body, opaque=2))
    assert peer.ask(MAX_OFFSET, {"topic": "Bystander", "queueId": "0"}, opaque=3).fields["offset"] == before


def test_queues_and_offsets_out_of_range_are_rejected(peer: RawClient):
    refused(peer.ask(SEND_V2, send_fields("Bystander", e="99"), b"x"), "99")
    refused(peer.ask(PULL, pull_fields("Bystander", queueId="99"), opaque=2), "99")
    moved = peer.ask(PULL, pull_fields("Bystander", 2**62), opaque=3)
    assert moved.code == 21
    end = peer.ask(MAX_OFFSET, {"topic": "Bystander", "queueId": "0"}, opaque=4).fields["offset"]
    assert moved.fields["nextBeginOffset"] == end
    for position in (-1, 7, 2**62):
        refused(peer.ask(33, {"offset": str(position)}, opaque=5))


@pytest.mark.proves("Order", "a lock by a client that is not in the group is rejected")
def test_a_lock_by_a_client_outside_the_group_is_rejected(peer: RawClient):
    queue = {"topic": "Bystander", "brokerName": "broker-a", "queueId": 0}
    body = json.dumps({"consumerGroup": "CG_Locked", "clientId": "stranger", "mqSet": [queue]}).encode()
    answer = peer.ask(LOCK_BATCH, None, body)
    assert answer.code == CONSUMER_NOT_ONLINE
    refused(answer, "The Consumer <CG_Locked> <stranger> not online")
    member = {"clientID": "member", "producerDataSet": [], "consumerDataSet": [consumer_data("CG_Locked")]}
    assert peer.ask(HEART_BEAT, None, json.dumps(member).encode(), opaque=2).code == SUCCESS
    assert peer.ask(LOCK_BATCH, None, body, opaque=3).code == CONSUMER_NOT_ONLINE
    locked = peer.ask(LOCK_BATCH, None, body.replace(b"stranger", b"member"), opaque=4)
    assert json.loads(locked.body)["lockOKMQSet"] == [queue]


@pytest.mark.proves(
    "Retries and dead letters",
    "no such offset, no such group, a topic or broker that may not be written to: rejected",
)
def test_nothing_is_sent_back_for_an_offset_without_a_message(shared: Cluster, peer: RawClient):
    member = {"clientID": "m", "producerDataSet": [], "consumerDataSet": [consumer_data("CG_Back")]}
    assert peer.ask(HEART_BEAT, None, json.dumps(member).encode()).code == SUCCESS
    before = everything(shared.broker.store)
    for position in (-1, 7, 2**62):
        refused(peer.ask(SEND_MSG_BACK, {"offset": str(position), "group": "CG_Back", "delayLevel": "0"}, opaque=2))
    nobody = peer.ask(SEND_MSG_BACK, {"offset": "0", "group": "../CG", "delayLevel": "0"}, opaque=3)
    assert (nobody.code, "subscription group not exist, ../CG" in nobody.remark) == (SUBSCRIPTION_GROUP_NOT_EXIST, True)
    assert everything(shared.broker.store) == before


@pytest.mark.proves("Consumers", "a reset of an unknown group, or to an impossible offset, changes nothing")
def test_impossible_resets_and_replies_change_nothing(shared: Cluster, peer: RawClient):
    def reset(**others: Any) -> RawAnswer:
        fields = {"group": "CG_Moved", "topic": "Bystander", "timestamp": "0", "isForce": "true", "queueId": "0"}
        return peer.ask(222, {**fields, **others}, opaque=9)

    assert peer.ask(200, body=b'{"groupName":"CG_Moved"}').code == SUCCESS
    assert reset(offset="1").code == SUCCESS
    before = peer.ask(43, opaque=2).body, peer.ask(28, opaque=3).body.split(b'"commitLogMaxOffset":"')[1].split(b'"')[0]
    for answer, code, words in (
        (reset(group="CG_Nobody"), 26, "Group CG_Nobody does not exist"),
        (reset(topic="Nothing"), 17, "Topic Nothing does not exist"),
        (reset(offset="1000000"), 1, "Target offset 1000000 not in consume queue range"),
        (reset(offset="-2"), 1, "Target offset -2 not in consume queue range"),
        (reset(queueId="1000"), 29, "QueueId 1000 is illegal"),
        (
            peer.ask(314, {"srcGroup": "CG_Nobody", "destGroup": "CG_Moved", "topic": "Bystander"}, opaque=4),
            26,
            "CG_Nobody",
        ),
        (peer.ask(325, send_fields("DefaultCluster_REPLY_TOPIC"), b"x", opaque=5), 1, "[REPLY_TO_CLIENT] is null"),
        (
            peer.ask(325, send_fields("DefaultCluster_REPLY_TOPIC", i="REPLY_TO_CLIENT\x01me\x02"), b"x", opaque=6),
            1,
            "channel of <me> not found",
        ),
    ):
        assert answer.code == code, answer
        refused(answer, words)
    after = peer.ask(43, opaque=7).body, peer.ask(28, opaque=8).body.split(b'"commitLogMaxOffset":"')[1].split(b'"')[0]
    assert after == before, "no offset and no message"


def test_an_unexpected_answer_is_ignored(peer: RawClient):
    peer.send(raw_frame(raw_header(0, opaque=77, flag=1)))
    assert peer.ask(SEND_V2, send_fields("Bystander"), b"x", opaque=2).code == SUCCESS


# -- registration


def crc(body: bytes) -> int:
    """RocketMQ's crc32 has 31 bits."""
    return zlib.crc32(body) & 0x7FFFFFFF


def test_a_registration_with_a_wrong_crc_changes_nothing(shared: Cluster):
    table = {"topicConfigTable": {"Injected": {"topicName": "Injected", "readQueueNums": 1, "writeQueueNums": 1}}}
    body = json.dumps({"topicConfigSerializeWrapper": table, "filterServerList": []}).encode()
    fields = {
        "brokerName": "broker-x", "brokerAddr": "127.0.0.1:1", "clusterName": "DefaultCluster", "brokerId": "0",
        "haServerAddr": "127.0.0.1:2", "compressed": "false", "bodyCrc32": str(crc(body) ^ 1),
    }  # fmt: skip
    with RawClient(shared.namesrv.address) as peer:
        refused(peer.ask(REGISTER, fields, body), "crc32")
        assert b"broker-x" not in peer.ask(106, opaque=2).body
        compressed = {**fields, "compressed": "true", "bodyCrc32": str(crc(body))}
        refused(peer.ask(REGISTER, compressed, body, opaque=3))
        bomb = zlib.compress(bytes(200 << 20))
        before = shared.namesrv.rss_bytes()
        refused(peer.ask(REGISTER, {**compressed, "bodyCrc32": str(crc(bomb))}, bomb, opaque=4))
        assert shared.namesrv.rss_bytes() - before < 64 << 20, "200 MiB of zeros were deflated into 200 kB"
        assert b"broker-x" not in peer.ask(106, opaque=5).body
        assert peer.ask(ROUTE, {"topic": "Injected"}, opaque=6).code == 17


def test_no_error_was_unexpected(servers: OurServers, shared: Cluster):
    """Bad input of a peer is a warning or an answer, never a traceback in our log."""
    assert [line for line in shared.broker.lines() + shared.namesrv.lines() if "Traceback" in line] == []
    assert shared.broker.process.poll() is None
    assert shared.namesrv.process.poll() is None
