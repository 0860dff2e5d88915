"""Strangers and groups of the sizes that once held a broker for seconds: others are served, and nothing stays."""

import contextlib
import json
import socket
from typing import Any

import pytest

from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.our_servers import OurServer, status_bytes
from tests.support.raw_client import RawAnswer, RawClient, raw_frame, raw_header
from tests.support.raw_requests import consumer_data, pull_fields, send_fields
from tests.support.wait_watch import WaitWatch
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]

MIB = 1 << 20
# A request may hold the loop for 50 ms of CPU time; the rest is for several in a row and for other threads.
LONGEST_S = 2.0
MEMBERS, STALLED = 1_500, 100
QUEUES = 16_384


def config_size(broker: OurServer) -> int:
    return sum(path.stat().st_size for path in (broker.store / "config").iterdir())


def heartbeat(client_id: str, *consumers: dict[str, Any]) -> bytes:
    return json.dumps({"clientID": client_id, "producerDataSet": [], "consumerDataSet": consumers}).encode()


def join(client: RawClient, client_id: str, group: str, opaque: int = 1) -> RawAnswer:
    return client.ask(RequestCode.HEART_BEAT, None, heartbeat(client_id, consumer_data(group)), opaque)


@pytest.mark.parametrize(
    ("count", "limit"), [(300_000, "maxRequestBodySize"), (40_000, "maxHeartbeatSize"), (9_000, "maxGroupsPerClient")]
)
def test_a_heartbeat_of_many_groups(broker: OurServer, count: int, limit: str):
    groups = ",".join(f'{{"groupName":"g{number}"}}' for number in range(count))
    body = f'{{"clientID":"c","producerDataSet":[],"consumerDataSet":[{groups}]}}'.encode()
    before = status_bytes(broker, "VmHWM")
    with WaitWatch(broker) as watch, RawClient(broker.address) as stranger:
        answer = stranger.ask(RequestCode.HEART_BEAT, None, body)
    assert answer.code != ResponseCode.SUCCESS
    assert limit in answer.remark
    assert watch.answers
    assert watch.longest_s < LONGEST_S
    assert status_bytes(broker, "VmHWM") - before < 64 * MIB
    assert config_size(broker) < MIB


def test_the_largest_heartbeats_that_are_accepted(broker: OurServer):
    topics = [{"topic": f"T{number}", "subString": "*", "subVersion": 1} for number in range(2)]
    with WaitWatch(broker) as watch, contextlib.ExitStack() as stack:
        for client in range(10):
            consumers = [{**consumer_data(f"g{client}-{n}"), "subscriptionDataSet": topics} for n in range(512)]
            member = stack.enter_context(RawClient(broker.address))
            answer = member.ask(RequestCode.HEART_BEAT, None, heartbeat(f"c{client}", *consumers))
            assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert watch.longest_s < LONGEST_S


def test_pulls_of_100_000_unknown_groups(broker: OurServer):
    with RawClient(broker.address) as stranger:
        assert stranger.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), b"body").code == ResponseCode.SUCCESS
        before = status_bytes(broker, "VmHWM")
        size = config_size(broker)
        with WaitWatch(broker) as watch:
            for start in range(0, 100_000, 100):
                frames = [
                    raw_frame(
                        raw_header(
                            RequestCode.PULL_MESSAGE, pull_fields("T", consumerGroup=f"made-up-{number}"), number
                        )
                    )
                    for number in range(start, start + 100)
                ]
                stranger.send(b"".join(frames))
                for _ in frames:
                    pulled = stranger.read()
                    assert pulled is not None
        listed = stranger.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    assert b"made-up" not in listed.body
    assert watch.longest_s < LONGEST_S
    assert status_bytes(broker, "VmHWM") - before < 32 * MIB
    assert config_size(broker) - size < 64 * 1024


def test_locks_of_400_000_made_up_queues(broker: OurServer):
    body: dict[str, Any] = {
        "consumerGroup": "g",
        "clientId": "c",
        "mqSet": [{"topic": "T", "brokerName": "b", "queueId": queue_id} for queue_id in range(400_000)],
    }
    with WaitWatch(broker) as watch, RawClient(broker.address) as stranger:
        join(stranger, "c", "g")
        too_many = {**body, "mqSet": body["mqSet"][:4_097]}
        refused = stranger.ask(RequestCode.LOCK_BATCH_MQ, None, json.dumps(too_many).encode())
        assert "maxQueuesPerLockRequest" in refused.remark
        for start in range(0, 400_000, 4_000):
            part = {**body, "mqSet": body["mqSet"][start : start + 4_000]}
            answer = stranger.ask(RequestCode.LOCK_BATCH_MQ, None, json.dumps(part).encode())
            assert (answer.code, json.loads(answer.body)) == (ResponseCode.SUCCESS, {"lockOKMQSet": []})
    assert watch.longest_s < LONGEST_S


def test_1_500_members_join_and_leave(broker: OurServer):
    with RawClient(broker.address) as last, WaitWatch(broker) as watch:
        with contextlib.ExitStack() as stack:
            for number in range(MEMBERS):
                member = stack.enter_context(RawClient(broker.address))
                assert join(member, f"c{number}", "g").code == ResponseCode.SUCCESS
            assert join(last, "last", "g").code == ResponseCode.SUCCESS

        def members() -> list[str]:
            answer = last.ask(RequestCode.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": "g"}, opaque=2)
            found: list[str] = json.loads(answer.body)["consumerIdList"]
            return found

        wait_until(lambda: members() == ["last"], "the others have left", 120)
    assert watch.longest_s < LONGEST_S


def stalled_member(broker: OurServer, number: int) -> socket.socket:
    """A member of group g that takes nothing any more: its kernel has room for little."""
    host, _, port = broker.address.rpartition(":")
    member = socket.socket()
    member.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    member.connect((host, int(port)))
    member.sendall(raw_frame(raw_header(RequestCode.HEART_BEAT), heartbeat(f"stalled{number}", consumer_data("g"))))
    return member


def test_subscriptions_that_change_beside_stalled_members(broker: OurServer):
    with contextlib.ExitStack() as stack:
        for number in range(STALLED):
            stack.enter_context(contextlib.closing(stalled_member(broker, number)))
        member = stack.enter_context(RawClient(broker.address))
        assert join(member, "quick", "g").code == ResponseCode.SUCCESS
        before = status_bytes(broker, "VmHWM")
        with WaitWatch(broker) as watch:
            for number in range(20_000):
                data = consumer_data("g")
                data["subscriptionDataSet"][0]["topic"] = f"T{number}"
                answer = member.ask(RequestCode.HEART_BEAT, None, heartbeat("quick", data), number)
                assert answer.code == ResponseCode.SUCCESS
    assert watch.longest_s < LONGEST_S
    assert status_bytes(broker, "VmHWM") - before < 64 * MIB


def test_600_messages_to_a_stalled_consumer(broker: OurServer):
    with RawClient(broker.address) as admin, contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.closing(stalled_member(broker, 0)))
        sent = admin.ask(RequestCode.SEND_MESSAGE_V2, send_fields("T"), bytes(4 * MIB - 4096))
        assert sent.code == ResponseCode.SUCCESS, sent.remark
        fields = {
            "consumerGroup": "g",
            "clientId": "stalled0",
            "msgId": sent.fields["msgId"],
            "brokerName": "b",
            "topic": "T",
        }
        before = status_bytes(broker, "VmHWM")
        admins = [stack.enter_context(RawClient(broker.address)) for _ in range(30)]
        with WaitWatch(broker) as watch:
            for each in admins:
                for number in range(20):
                    each.send(raw_frame(raw_header(RequestCode.CONSUME_MESSAGE_DIRECTLY, fields, number)))
            answers = [each.read() for each in admins for _ in range(20)]
    codes = {answer.code for answer in answers if answer is not None}
    assert len(answers) == 600
    assert codes <= {ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR, ResponseCode.CONSUME_MSG_TIMEOUT}
    assert ResponseCode.SUCCESS not in codes
    assert watch.longest_s < LONGEST_S
    assert status_bytes(broker, "VmHWM") - before < 256 * MIB


def test_statistics_of_a_topic_of_16_384_queues_that_is_named_1_000_times(broker: OurServer):
    fields = {
        "topic": "Wide",
        "defaultTopic": "TBW102",
        "readQueueNums": str(QUEUES),
        "writeQueueNums": str(QUEUES),
        "perm": "6",
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": "0",
        "order": "false",
    }
    with RawClient(broker.address) as admin:
        made = admin.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)
        assert made.code == ResponseCode.SUCCESS, made.remark
        with WaitWatch(broker) as watch:
            answer = admin.ask(
                RequestCode.GET_CONSUME_STATS, {"consumerGroup": "g", "topicList": ";".join(["Wide"] * 1_000)}
            )
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.QUERY_CONSUME_TIME_SPAN):
                answer = admin.ask(code, {"topic": "Wide", "group": "g"})
                assert answer.code == ResponseCode.SUCCESS, answer.remark
    assert watch.answers > 3
    assert watch.longest_s < LONGEST_S
