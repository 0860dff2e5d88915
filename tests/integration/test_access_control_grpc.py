"""A broker's gRPC port with access control: calls of signed and of other clients."""

import json
import logging
import threading
import time
from collections.abc import Iterator

import grpc
import pytest

from rocketbroker.auth.audit_log import AUDIT_LOGGER
from rocketbroker.codec.remoting.request_code import RequestCode as Code
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.testing import RocketMQServer
from tests.integration.test_access_control import INNER, JOE, PROPERTIES, ROOT, TOPIC, Cluster
from tests.support.grpc_calls import METADATA, method, signed

T, G, OTHER = (pb.Resource(name=name) for name in (TOPIC, "CG_Grpc", "Elsewhere"))
CALLS = [
    ("QueryRoute", pb.QueryRouteRequest(topic=T)),
    ("QueryAssignment", pb.QueryAssignmentRequest(topic=T, group=G)),
    ("Heartbeat", pb.HeartbeatRequest(group=G, client_type=pb.SIMPLE_CONSUMER)),
    ("NotifyClientTermination", pb.NotifyClientTerminationRequest(group=G)),
    ("ReceiveMessage", pb.ReceiveMessageRequest(group=G, message_queue=pb.MessageQueue(topic=T))),
    ("AckMessage", pb.AckMessageRequest(group=G, topic=T, entries=[pb.AckMessageEntry(receipt_handle="x")])),
    ("ChangeInvisibleDuration", pb.ChangeInvisibleDurationRequest(group=G, topic=T, receipt_handle="x")),
    (
        "ForwardMessageToDeadLetterQueue",
        pb.ForwardMessageToDeadLetterQueueRequest(group=G, topic=T, receipt_handle="x"),
    ),
    ("EndTransaction", pb.EndTransactionRequest(topic=T, transaction_id="t", message_id="m")),
    ("RecallMessage", pb.RecallMessageRequest(topic=T, recall_handle="h")),
    ("SendMessage", pb.SendMessageRequest(messages=[pb.Message(topic=T, body=b"x")])),
]


@pytest.fixture(scope="module")
def served(prompt_refusals: None) -> Iterator[tuple[Cluster, grpc.Channel]]:
    with RocketMQServer(PROPERTIES, grpc=True) as mq, grpc.insecure_channel(mq.endpoints) as channel:
        cluster = Cluster(mq)
        yield cluster, channel
        cluster.close()


def code_of(channel: grpc.Channel, name: str, request: object, metadata: tuple[tuple[str, str], ...]) -> int:
    reply = method(channel, name)(request, metadata)
    if name == "ReceiveMessage":
        reply = next(iter(reply))
    return int(reply.status.code)


@pytest.mark.parametrize(("name", "request_"), CALLS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_call_is_served_with_its_rights_alone(served, name: str, request_):
    cluster, channel = served
    cluster.clear()
    cluster.allow(("Topic:Elsewhere", "All"), ("Group:Elsewhere", "All"))
    assert code_of(channel, name, request_, METADATA) == pb.UNAUTHORIZED
    assert code_of(channel, name, request_, signed((JOE[0], "guess"))) == pb.UNAUTHORIZED
    assert code_of(channel, name, request_, signed(JOE)) == pb.FORBIDDEN
    cluster.allow((f"Topic:{TOPIC}", "All"), ("Group:CG_Grpc", "All"))
    assert code_of(channel, name, request_, signed(JOE)) not in {pb.UNAUTHORIZED, pb.FORBIDDEN}


def test_a_refused_call_is_in_the_audit_log(served, caplog: pytest.LogCaptureFixture):
    cluster, channel = served
    cluster.clear()
    caplog.set_level(logging.INFO, AUDIT_LOGGER)
    topic = pb.Resource(name="NotOfJoe")  # the same refusal within 10 s has one line
    assert code_of(channel, "QueryRoute", pb.QueryRouteRequest(topic=topic), signed(JOE)) == pb.FORBIDDEN
    (line,) = (json.loads(record.message) for record in caplog.records if record.name == AUDIT_LOGGER)
    assert (line["event"], line["server"], line["user"], line["request"]) == (
        "refused",
        "broker-a_0",
        JOE[0],
        "QueryRoute",
    )
    assert "no permission to access Topic:NotOfJoe" in line["reason"]


def test_settings_of_a_client_need_the_rights_on_their_names(served):
    cluster, channel = served
    cluster.clear()
    cluster.allow((f"Topic:{TOPIC}", "Pub"))

    def first_reply(topic: pb.Resource, metadata: tuple[tuple[str, str], ...]) -> pb.TelemetryCommand:
        settings = pb.Settings(client_type=pb.PRODUCER, publishing=pb.Publishing(topics=[topic]))
        commands = iter([pb.TelemetryCommand(settings=settings)])
        reply: pb.TelemetryCommand = next(iter(method(channel, "Telemetry")(commands, metadata)))
        return reply

    assert first_reply(T, METADATA).status.code == pb.UNAUTHORIZED
    assert first_reply(OTHER, signed(JOE)).status.code == pb.FORBIDDEN
    assert first_reply(T, signed(JOE)).HasField("settings")


@pytest.mark.parametrize("has_stream", [True, False])
def test_a_client_that_lost_the_rights_of_its_settings_is_forgotten(served, has_stream: bool):
    cluster, channel = served
    cluster.clear()
    cluster.allow((f"Topic:{TOPIC}", "Pub"))
    end = threading.Event()

    def commands() -> Iterator[pb.TelemetryCommand]:
        settings = pb.Settings(client_type=pb.PRODUCER, publishing=pb.Publishing(topics=[T]))
        yield pb.TelemetryCommand(settings=settings)
        end.wait(15)

    stream, heartbeat = iter(method(channel, "Telemetry")(commands(), signed(JOE))), pb.HeartbeatRequest()
    try:
        assert next(stream).HasField("settings")
        if not has_stream:
            end.set()
            assert list(stream) == []
        assert code_of(channel, "Heartbeat", heartbeat, signed(JOE)) == pb.OK
        cluster.clear()
        refused = next(stream).status.code if has_stream else code_of(channel, "Heartbeat", heartbeat, signed(JOE))
        assert refused == pb.FORBIDDEN
        assert code_of(channel, "Heartbeat", heartbeat, signed(JOE)) == pb.UNRECOGNIZED_CLIENT_TYPE
    finally:
        end.set()


def test_a_receive_that_waits_ends_with_the_right(served):
    cluster, channel = served
    cluster.clear()
    cluster.allow((f"Topic:{TOPIC}", "Sub"), ("Group:CG_Grpc", "Sub"))
    receive = pb.ReceiveMessageRequest(
        group=G,
        message_queue=pb.MessageQueue(topic=T),
        batch_size=1,
        filter_expression=pb.FilterExpression(type=pb.TAG, expression="nothing"),
    )
    receive.invisible_duration.FromSeconds(30)
    receive.long_polling_timeout.FromSeconds(20)
    began, replies = time.monotonic(), method(channel, "ReceiveMessage")(receive, signed(JOE))
    held = {"consumerGroup": "CG_Grpc", "topic": TOPIC, "queueId": "-1"}
    while cluster.root.ask(Code.POLLING_INFO, held).fields.get("pollingNum") != "1":
        assert time.monotonic() - began < 15
    cluster.clear()
    assert next(iter(replies)).status.code == pb.FORBIDDEN
    assert time.monotonic() - began < 18


def test_the_users_of_remoting_are_those_of_the_port(served):
    cluster, channel = served
    for user in (ROOT, INNER):
        assert code_of(channel, "QueryRoute", CALLS[0][1], signed(user)) == pb.OK
    cluster.ok(
        cluster.root.ask(Code.AUTH_UPDATE_USER, {"username": "joe"}, json.dumps({"userStatus": "disable"}).encode())
    )
    assert code_of(channel, "QueryRoute", CALLS[0][1], signed(JOE)) == pb.UNAUTHORIZED
