"""Calls of the gRPC service, one after the other; what Apache's proxy 5.5.0 answers is in tests/golden/grpc.

To record it again, where Java is installed:

    python -m tests.support.grpc_script > tests/golden/grpc/exchanges.jsonl

Each line has the name of an exchange, its method, and the replies as protobuf's JSON, or the status of gRPC. Answers
depend on earlier calls, so the script is run as a whole. Topics have one queue, which makes offsets the same each time.
"""

import asyncio
import gzip
import hashlib
import json
import queue
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.json_format import MessageToDict
from google.protobuf.timestamp_pb2 import Timestamp

from rocketbroker.codec.message.message_id import create_message_id, host_bytes
from rocketbroker.codec.remoting.headers.admin import ConsumeMessageDirectlyResultRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.remoting_command import request as remoting_request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.grpc_server import SERVICE
from rocketbroker.transport.remoting_client import RemotingClient
from tests.support.grpc_calls import metadata_of, method
from tests.support.grpc_servers import GrpcServer, apache
from tests.support.java import Java
from tests.support.our_servers import OurServers, make_topic
from tests.support.running import stopping

GOLDEN = Path(__file__).parent.parent / "golden" / "grpc" / "exchanges.jsonl"
TOPICS = {
    "Orders": "NORMAL",
    "Single": "NORMAL",
    "Steps": "FIFO",
    "Later": "DELAY",
    "Paid": "TRANSACTION",
}
BORN = Timestamp(seconds=1_795_255_000)
PRODUCER, BILLING, ORDERED, STRANGER = "producer", "billing", "ordered", "stranger"
MOMENT, HOUR = Duration(seconds=5), Duration(seconds=3600)


class Exchange(NamedTuple):
    """A call and its replies, as protobuf's JSON; ``status`` is that of gRPC, mostly OK."""

    name: str
    method: str
    replies: list[dict[str, Any]]
    status: str
    details: str


def golden_exchanges() -> list[Exchange]:
    """Return what Apache's proxy 5.5.0 answered, in order."""
    return [Exchange(**json.loads(line)) for line in GOLDEN.read_text().splitlines()]


def prepare(server: GrpcServer) -> None:
    """Make topics and groups."""
    for topic, message_type in TOPICS.items():
        make_topic(server.broker, server.namesrv, topic, 1, message_type=message_type)
    make_topic(server.broker, server.namesrv, "Wide", 3)
    make_topic(server.broker, server.namesrv, "Urgent", 3, message_type="PRIORITY")
    server.make_group("billing")
    server.make_group("ordered", orderly=True)


def resource(name: str) -> pb.Resource:
    return pb.Resource(name=name)


def message(topic: str, number: int, body: bytes = b"body", **system: Any) -> pb.Message:
    """Return a message whose id is made of a number."""
    fields: dict[str, Any] = {"message_id": f"01{number:032X}", "message_type": pb.NORMAL, "born_timestamp": BORN}
    return pb.Message(topic=resource(topic), body=body, system_properties=pb.SystemProperties(**{**fields, **system}))


def with_properties(number: int, **properties: str) -> pb.Message:
    sent = message("Orders", number)
    sent.user_properties.update(properties)
    return sent


def receive(topic: str = "Single", group: str = "billing", **fields: Any) -> pb.ReceiveMessageRequest:
    values: dict[str, Any] = {
        "batch_size": 8,
        "invisible_duration": HOUR,
        "long_polling_timeout": MOMENT,
        "filter_expression": pb.FilterExpression(type=pb.TAG, expression="*"),
        **fields,
    }
    return pb.ReceiveMessageRequest(
        group=resource(group), message_queue=pb.MessageQueue(topic=resource(topic)), **values
    )


def ack(*handles: str, topic: str = "Single", group: str = "billing") -> pb.AckMessageRequest:
    entries = [pb.AckMessageEntry(message_id=f"id-{n}", receipt_handle=each) for n, each in enumerate(handles)]
    return pb.AckMessageRequest(group=resource(group), topic=resource(topic), entries=entries)


def change(handle: str, seconds: int, topic: str = "Single") -> pb.ChangeInvisibleDurationRequest:
    return pb.ChangeInvisibleDurationRequest(
        group=resource("billing"), topic=resource(topic), receipt_handle=handle,
        invisible_duration=Duration(seconds=seconds), message_id="id",
    )  # fmt: skip


def forward(handle: str) -> pb.ForwardMessageToDeadLetterQueueRequest:
    return pb.ForwardMessageToDeadLetterQueueRequest(
        group=resource("billing"), topic=resource("Single"), receipt_handle=handle, message_id="id",
        delivery_attempt=1, max_delivery_attempts=16,
    )  # fmt: skip


def end(transaction_id: str, resolution: pb.TransactionResolution, message_id: str = "id") -> pb.EndTransactionRequest:
    return pb.EndTransactionRequest(
        topic=resource("Paid"), message_id=message_id, transaction_id=transaction_id, resolution=resolution,
        source=pb.SOURCE_CLIENT,
    )  # fmt: skip


def publishing(*topics: str) -> pb.Settings:
    return pb.Settings(client_type=pb.PRODUCER, publishing=pb.Publishing(topics=[resource(each) for each in topics]))


def subscribing(group: str, kind: pb.ClientType = pb.PUSH_CONSUMER, topic: str = "Single") -> pb.Settings:
    entry = pb.SubscriptionEntry(topic=resource(topic), expression=pb.FilterExpression(type=pb.TAG, expression="*"))
    subscription = pb.Subscription(group=resource(group), subscriptions=[entry])
    return pb.Settings(client_type=kind, subscription=subscription)


class GrpcScript:
    """The calls, on one connection."""

    def __init__(self, server: GrpcServer) -> None:
        self._server = server
        self._channel = grpc.insecure_channel(server.endpoints, options=[("grpc.max_send_message_length", -1)])
        # Commands of each client, and those that it gets.
        self._sent: dict[str, queue.Queue[pb.TelemetryCommand | None]] = {}
        self._got: dict[str, queue.Queue[pb.TelemetryCommand]] = {}

    def close(self) -> None:
        """End all streams and the connection."""
        for commands in self._sent.values():
            commands.put(None)
        self._channel.close()

    def run(self) -> Iterator[Exchange]:
        """Make the calls."""
        yield from self._routes()
        yield from self._clients()
        slow = self._begin_slow()
        yield from self._sends()
        yield from self._receives()
        yield from self._transactions()
        yield from self._recalls()
        yield from self._calls_without_a_client_id()
        yield from self._namespaces()
        yield from self._handles()
        yield from self._fifo_receives()
        yield from self._checks()
        if self._server.name not in {"our-proxy", "proxy-apache"}:  # brokers do not know the consumers of a proxy
            yield from self._verifications()
        yield from self._priorities()
        yield from slow()
        yield from self._ends()

    def _call(
        self,
        name: str,
        method_name: str,
        request: Any,
        client_id: str = STRANGER,
        timeout: float = 30,
        **metadata_fields: str,
    ) -> Exchange:
        further = tuple((key.replace("_", "-"), value) for key, value in metadata_fields.items())
        metadata = (*metadata_of(client_id), *further) if client_id else ()
        try:
            answer = method(self._channel, method_name)(request, metadata=metadata, timeout=timeout)
            replies = list(answer) if method_name == "ReceiveMessage" else [answer]
        except grpc.RpcError as error:
            return Exchange(name, method_name, [], error.code().name, error.details() or "")
        return Exchange(name, method_name, [_shown(each) for each in replies], "OK", "")

    def _settings(self, name: str, settings: pb.Settings, client_id: str) -> Exchange:
        """Open a telemetry stream, which stays open."""
        commands: queue.Queue[pb.TelemetryCommand | None] = queue.Queue()
        commands.put(pb.TelemetryCommand(settings=settings))
        self._sent[client_id] = commands
        metadata = metadata_of(client_id) if client_id else ()
        stream = method(self._channel, "Telemetry")(iter(commands.get, None), metadata=metadata, timeout=None)
        try:
            first = _shown(next(stream))
        except grpc.RpcError as error:
            return Exchange(name, "Telemetry", [], error.code().name, error.details() or "")
        got = self._got[client_id] = queue.Queue()

        def read() -> None:
            with suppress(grpc.RpcError):
                for command in stream:
                    got.put(command)

        threading.Thread(target=read, daemon=True).start()
        return Exchange(name, "Telemetry", [first], "OK", "")

    def _command(self, client_id: str) -> pb.TelemetryCommand:
        """Return the next command that a client gets."""
        return self._got[client_id].get(timeout=60)

    def _routes(self) -> Iterator[Exchange]:
        def route(topic: str) -> pb.QueryRouteRequest:
            return pb.QueryRouteRequest(topic=resource(topic))

        def assignment(topic: str, group: str) -> pb.QueryAssignmentRequest:
            return pb.QueryAssignmentRequest(topic=resource(topic), group=resource(group))

        yield self._call("route without a client id", "QueryRoute", route("Orders"), "")
        for topic in (*TOPICS, "Wide"):
            yield self._call(f"route of {topic}", "QueryRoute", route(topic))
        yield self._call("route of an unknown topic", "QueryRoute", route("Unknown"))
        yield self._call("route of an illegal topic", "QueryRoute", route("no blank"))
        yield self._call("route of no topic", "QueryRoute", route(""))
        yield self._call("route of a system topic", "QueryRoute", route("TBW102"))
        yield self._call("assignment", "QueryAssignment", assignment("Wide", "billing"))
        yield self._call("assignment of an orderly group", "QueryAssignment", assignment("Wide", "ordered"))
        yield self._call("assignment of an unknown topic", "QueryAssignment", assignment("Unknown", "billing"))
        yield self._call("assignment of an illegal group", "QueryAssignment", assignment("Wide", "no blank"))
        yield self._call("assignment of a system group", "QueryAssignment", assignment("Wide", "CID_RMQ_SYS_x"))

    def _clients(self) -> Iterator[Exchange]:
        def heartbeat(group: str = "", kind: pb.ClientType = pb.PUSH_CONSUMER) -> pb.HeartbeatRequest:
            return pb.HeartbeatRequest(client_type=kind, group=resource(group) if group else None)

        termination = pb.NotifyClientTerminationRequest()
        yield self._call("heartbeat without settings", "Heartbeat", heartbeat("billing"))
        yield self._call("termination without settings", "NotifyClientTermination", termination)
        yield self._settings("settings of a producer", publishing("Orders", "Paid"), PRODUCER)
        yield self._settings("settings of a consumer", subscribing("billing"), BILLING)
        yield self._settings("settings of an orderly group", subscribing("ordered", pb.SIMPLE_CONSUMER), ORDERED)
        yield self._settings("settings of nothing", pb.Settings(client_type=pb.PRODUCER), STRANGER)
        yield self._settings("settings of an illegal topic", publishing("no blank"), STRANGER)
        yield self._settings("settings of an illegal group", subscribing("no blank"), STRANGER)
        yield self._call("heartbeat of a producer", "Heartbeat", heartbeat(kind=pb.PRODUCER), PRODUCER)
        yield self._call("heartbeat of a consumer", "Heartbeat", heartbeat("billing"), BILLING)
        yield self._call("heartbeat of an illegal group", "Heartbeat", heartbeat("no blank"), BILLING)

    def _sends(self) -> Iterator[Exchange]:
        text = gzip.compress(b"body" * 100, mtime=0)
        checksum = hashlib.md5(b"body", usedforsecurity=False).hexdigest().upper()
        late = Timestamp(seconds=4_000_000_000)
        cases: dict[str, list[pb.Message]] = {
            "send": [message("Orders", 1)],
            "send the next": [message("Orders", 2, tag="a", keys=["k1", "k2"])],
            "send what is compressed": [message("Orders", 3, text, body_encoding=pb.GZIP)],
            "send with a digest": [message("Orders", 4, body_digest=pb.Digest(type=pb.MD5, checksum=checksum))],
            "send three": [message("Orders", number) for number in (5, 6, 7)],
            "send in order": [message("Steps", 8, message_group="g", message_type=pb.FIFO)],
            "send nothing": [],
            "send to two topics": [message("Orders", 10), message("Steps", 11)],
            "send to an unknown topic": [message("Unknown", 12)],
            "send to an illegal topic": [message("no blank", 13)],
            "send to a system topic": [message("TBW102", 14)],
            "send no body": [message("Orders", 15, b"")],
            "send a large body": [message("Orders", 16, bytes((4 << 20) + 1))],
            "send 129 properties": [with_properties(17, **{f"p{n}": "x" for n in range(129)})],
            "send large properties": [with_properties(18, p="x" * 16_384)],
            "send a property of the system": [with_properties(19, UNIQ_KEY="x")],
            "send a control character": [with_properties(20, p="a\x02")],
            "send two tags": [message("Orders", 21, tag="a|b")],
            "send a blank tag": [message("Orders", 22, tag=" ")],
            "send a blank key": [message("Orders", 23, keys=[" "])],
            "send without an id": [message("Orders", 24, message_id="")],
            "send a long group": [message("Steps", 25, message_group="g" * 64, message_type=pb.FIFO)],
            "send in order to a normal topic": [message("Orders", 26, message_group="g", message_type=pb.FIFO)],
            "send without order to an ordered topic": [message("Steps", 27)],
            "send too late": [message("Later", 28, delivery_timestamp=late, message_type=pb.DELAY)],
        }  # fmt: skip
        for name, messages in cases.items():
            yield self._call(name, "SendMessage", pb.SendMessageRequest(messages=messages), PRODUCER)

    def _receives(self) -> Iterator[Exchange]:
        yield self._receive("receive of no messages", receive())
        yield self._receive("receive of an unknown topic", receive("Unknown"))
        yield self._receive("receive of an illegal topic", receive("no blank"))
        yield self._receive("receive by an illegal group", receive(group="no blank"))
        for name, seconds in {"no": 0, "a short": 9, "a year's": 31_536_000, "a negative": -1}.items():
            yield self._receive(
                f"receive with {name} invisible time", receive(invisible_duration=Duration(seconds=seconds))
            )
        wrong = pb.FilterExpression(type=pb.SQL, expression="a >")
        yield self._receive("receive with no expression", receive(filter_expression=pb.FilterExpression(type=pb.SQL)))
        yield self._receive("receive with no tag", receive(filter_expression=pb.FilterExpression(expression="||")))
        yield self._receive("receive with wrong SQL", receive(filter_expression=wrong))
        yield self._receive("receive near the deadline", receive(), timeout=4)

        def send(number: int) -> Exchange:
            request = pb.SendMessageRequest(messages=[message("Single", number, tag="a", keys=["k"])])
            return self._call(f"send number {number}", "SendMessage", request, PRODUCER)

        yield send(100)
        found = self._receive("receive of a message", receive())
        yield found
        handle = _handle_in(found)
        changed = self._call("change", "ChangeInvisibleDuration", change(handle, 60), BILLING)
        yield changed
        for name, seconds in {"a year": 31_536_000, "a negative time": -1}.items():
            yield self._call(f"change to {name}", "ChangeInvisibleDuration", change(handle, seconds), BILLING)
        yield self._call("change by nonsense", "ChangeInvisibleDuration", change("nonsense", 60), BILLING)
        yield self._call(
            "change of an unknown topic", "ChangeInvisibleDuration", change(handle, 60, "Unknown"), BILLING
        )
        newest = str(changed.replies[0]["receiptHandle"])
        yield self._call("ack", "AckMessage", ack(newest), BILLING)
        yield self._call("ack twice", "AckMessage", ack(newest), BILLING)
        yield self._call("ack by the handle before a change", "AckMessage", ack(handle), BILLING)
        yield self._call("ack by nonsense", "AckMessage", ack("nonsense"), BILLING)
        yield self._call("ack by nothing", "AckMessage", ack(""), BILLING)
        yield self._call("ack of nothing", "AckMessage", ack(), BILLING)
        yield self._call("ack by two handles", "AckMessage", ack(newest, "nonsense"), BILLING)
        yield self._call("ack of an illegal topic", "AckMessage", ack(newest, topic="no blank"), BILLING)
        expired = newest.split(" ")
        expired[1] = "1"
        yield self._call("ack by an expired handle", "AckMessage", ack(" ".join(expired)), BILLING)
        yield send(101)
        found = self._receive("receive of another message", receive())
        yield found
        dead = "ForwardMessageToDeadLetterQueue"
        yield self._call("forward", dead, forward(_handle_in(found)), BILLING)
        yield self._call("forward by nonsense", dead, forward("nonsense"), BILLING)

    def _receive(self, name: str, request: pb.ReceiveMessageRequest, timeout: float = 30) -> Exchange:
        return self._call(name, "ReceiveMessage", request, BILLING, timeout)

    def _transactions(self) -> Iterator[Exchange]:
        half = pb.SendMessageRequest(messages=[message("Paid", 200, message_type=pb.TRANSACTION)])
        sent = self._call("send in a transaction", "SendMessage", half, PRODUCER)
        yield sent
        transaction_id = str(sent.replies[0]["entries"][0]["transactionId"])
        yield self._call("end nonsense", "EndTransaction", end("nonsense", pb.COMMIT), PRODUCER)
        yield self._call("end nothing", "EndTransaction", end("", pb.COMMIT), PRODUCER)
        yield self._call("commit", "EndTransaction", end(transaction_id, pb.COMMIT, transaction_id), PRODUCER)
        yield self._call("commit twice", "EndTransaction", end(transaction_id, pb.COMMIT, transaction_id), PRODUCER)

    def _recalls(self) -> Iterator[Exchange]:
        def recall(handle: str, topic: str = "Later") -> pb.RecallMessageRequest:
            return pb.RecallMessageRequest(topic=resource(topic), recall_handle=handle)

        due = Timestamp()
        due.GetCurrentTime()
        due.seconds += 3600
        late = pb.SendMessageRequest(messages=[message("Later", 300, delivery_timestamp=due, message_type=pb.DELAY)])
        sent = self._call("send for later", "SendMessage", late, PRODUCER)
        yield sent
        handle = str(sent.replies[0]["entries"][0].get("recallHandle", ""))
        yield self._call("recall", "RecallMessage", recall(handle), PRODUCER)
        yield self._call("recall nonsense", "RecallMessage", recall("nonsense"), PRODUCER)
        yield self._call("recall nothing", "RecallMessage", recall(""), PRODUCER)
        yield self._call("recall from a normal topic", "RecallMessage", recall(handle, "Orders"), PRODUCER)

    def _priorities(self) -> Iterator[Exchange]:
        def urgent(number: int, priority: int, topic: str = "Urgent", **system: Any) -> pb.Message:
            return message(topic, number, priority=priority, **{"message_type": pb.PRIORITY, **system})

        yield self._call("route of Urgent", "QueryRoute", pb.QueryRouteRequest(topic=resource("Urgent")))
        due = Timestamp()
        due.GetCurrentTime()
        due.seconds += 3600
        cases: dict[str, list[pb.Message]] = {
            "send priority 0": [urgent(400, 0)],
            "send priority 1": [urgent(401, 1)],
            "send priority 9": [urgent(402, 9)],
            "send a priority as a normal message": [urgent(403, 1, message_type=pb.NORMAL)],
            "send a negative priority": [urgent(404, -1)],
            "send no priority to a topic of priorities": [message("Urgent", 405)],
            "send a priority to a normal topic": [urgent(406, 1, "Orders")],
            "send a priority in order": [urgent(407, 1, message_group="g")],
            "send a priority in order to an ordered topic": [urgent(408, 1, "Steps", message_group="g")],
            "send a priority in a transaction": [urgent(409, 1, message_type=pb.TRANSACTION)],
            "send a priority for later": [urgent(410, 1, delivery_timestamp=due)],
            "send the property of priorities": [with_properties(411, _SYS_MSG_PRIORITY_="1")],
        }
        for name, messages in cases.items():
            yield self._call(name, "SendMessage", pb.SendMessageRequest(messages=messages), PRODUCER)
        yield self._receive("receive by priority", receive("Urgent"))
        yield self._receive("receive an ordered one that had a priority", receive("Steps"))

    def _begin_slow(self) -> Callable[[], Iterator[Exchange]]:
        """Begin receives that wait for 5 s; the result returns their exchanges."""
        requests = {
            "receive with a negative poll": receive("Wide", long_polling_timeout=Duration(seconds=-1)),
            "receive of the most messages": receive("Wide", batch_size=2**31 - 1),
            "receive of 33 messages": receive("Wide", batch_size=33),
            "receive of 0 messages": receive("Wide", batch_size=0),
            "receive of less than 0 messages": receive("Wide", batch_size=-1),
        }
        pool = ThreadPoolExecutor()
        futures = [pool.submit(self._receive, name, request) for name, request in requests.items()]

        def collect() -> Iterator[Exchange]:
            for future in futures:
                yield future.result()
            pool.shutdown()

        return collect

    def _calls_without_a_client_id(self) -> Iterator[Exchange]:
        requests: dict[str, Any] = {
            "Heartbeat": pb.HeartbeatRequest(client_type=pb.PRODUCER),
            "SendMessage": pb.SendMessageRequest(messages=[message("Orders", 400)]),
            "QueryAssignment": pb.QueryAssignmentRequest(topic=resource("Orders"), group=resource("billing")),
            "ReceiveMessage": receive(),
            "AckMessage": ack("nonsense"),
            "ForwardMessageToDeadLetterQueue": forward("nonsense"),
            "EndTransaction": end("nonsense", pb.COMMIT),
            "NotifyClientTermination": pb.NotifyClientTerminationRequest(),
            "ChangeInvisibleDuration": change("nonsense", 60),
            "RecallMessage": pb.RecallMessageRequest(topic=resource("Later"), recall_handle="nonsense"),
        }
        for name, request in requests.items():
            yield self._call(f"{name} without a client id", name, request, "")
        yield self._settings("Telemetry without a client id", publishing("Orders"), "")

    def _namespaces(self) -> Iterator[Exchange]:
        single, tenants = message("Single", 410), pb.Resource(resource_namespace="tenant", name="Single")
        route = pb.QueryRouteRequest(topic=tenants)
        yield self._call("route of a namespace", "QueryRoute", route)
        yield self._call("route with a namespace in the metadata", "QueryRoute", route, x_mq_namespace="tenant")
        single.topic.CopyFrom(tenants)
        yield self._call("send in a namespace", "SendMessage", pb.SendMessageRequest(messages=[single]), PRODUCER)
        request = receive()
        request.message_queue.topic.CopyFrom(tenants)
        request.group.resource_namespace = "tenant"
        found = self._receive("receive in a namespace", request)
        yield found
        acked = ack(_handle_in(found))
        acked.topic.CopyFrom(tenants)
        acked.group.resource_namespace = "tenant"
        yield self._call("ack in a namespace", "AckMessage", acked, BILLING)

    def _handles(self) -> Iterator[Exchange]:
        dead = "ForwardMessageToDeadLetterQueue"
        sent = pb.SendMessageRequest(messages=[message("Single", 420)])
        yield self._call("send number 420", "SendMessage", sent, PRODUCER)
        found = self._receive("receive with auto_renew", receive(auto_renew=True))
        yield found
        handle = _handle_in(found)
        yield self._call("ack with another topic", "AckMessage", ack(handle, topic="Orders"), BILLING)
        yield self._call("ack with another group", "AckMessage", ack(handle, group="ordered"), BILLING)
        yield self._call("change with another topic", "ChangeInvisibleDuration", change(handle, 60, "Orders"), BILLING)
        other = forward(handle)
        other.topic.name = "Orders"
        yield self._call("forward with another topic", dead, other, BILLING)
        at_once = self._call("change to 0", "ChangeInvisibleDuration", change(handle, 0), BILLING)
        yield at_once
        found = self._receive("receive after a change to 0", receive(long_polling_timeout=Duration(seconds=20)))
        yield found
        suspended = change(_handle_in(found), 60)
        suspended.suspend = True
        changed = self._call("change that suspends", "ChangeInvisibleDuration", suspended, BILLING)
        yield changed
        newest = str(changed.replies[0]["receiptHandle"])
        yield self._call("ack after a change that suspends", "AckMessage", ack(newest), BILLING)

    def _fifo_receives(self) -> Iterator[Exchange]:
        """Receive in order what an earlier call sent."""

        def receive_as(name: str, attempt: str) -> Exchange:
            request = receive("Steps", "ordered", attempt_id=attempt)
            return self._call(name, "ReceiveMessage", request, ORDERED)

        found = receive_as("receive in order", "attempt-1")
        yield found
        yield receive_as("receive in order by the same attempt", "attempt-1")
        yield receive_as("receive in order by another attempt", "attempt-2")
        acked = ack(_handle_in(found), topic="Steps", group="ordered")
        yield self._call("ack in order", "AckMessage", acked, ORDERED)

    def _checks(self) -> Iterator[Exchange]:
        born = Timestamp()
        born.GetCurrentTime()  # a broker does not ask about an old one
        sent = message("Paid", 201, message_type=pb.TRANSACTION, tag="a", keys=["k"], born_timestamp=born)
        half = pb.SendMessageRequest(messages=[sent])
        beat = pb.HeartbeatRequest(client_type=pb.PRODUCER)
        yield self._call("heartbeat before a check", "Heartbeat", beat, PRODUCER)
        yield self._call("send in a transaction that stays open", "SendMessage", half, PRODUCER)
        command = self._command(PRODUCER)
        yield Exchange("check of a transaction", "Telemetry", [_shown(command)], "OK", "")
        transaction_id = command.recover_orphaned_transaction_command.transaction_id
        rollback = end(transaction_id, pb.ROLLBACK, transaction_id)
        rollback.source = pb.SOURCE_SERVER_CHECK
        yield self._call("rollback after a check", "EndTransaction", rollback, PRODUCER)

    def _verifications(self) -> Iterator[Exchange]:
        """Let the broker pass a message of an administrator on to a consumer, with several answers."""
        sent = pb.SendMessageRequest(messages=[message("Single", 430)])
        yield self._call("send number 430", "SendMessage", sent, PRODUCER)
        found = self._receive("receive before a verification", receive())
        yield found
        handle = _handle_in(found)
        host, _, port = self._server.broker.rpartition(":")
        message_id = create_message_id(host_bytes(host, int(port)), int(handle.split(" ")[8]))
        verify = remoting_request(
            RequestCode.CONSUME_MESSAGE_DIRECTLY,
            ConsumeMessageDirectlyResultRequestHeader("billing", BILLING, message_id, topic="Single"),
        )
        for code in (pb.OK, pb.FAILED_TO_CONSUME_MESSAGE, pb.MESSAGE_CORRUPTED, pb.VERIFY_FIFO_MESSAGE_UNSUPPORTED):
            name = f"verification answered by {pb.Code.Name(code)}"
            answer = pb.TelemetryCommand(status=pb.Status(code=code, message="why"))
            yield from self._verified(name, verify, answer)
        yield self._call("ack after a verification", "AckMessage", ack(handle), BILLING)

    def _verified(self, name: str, question: Command, answer: pb.TelemetryCommand) -> Iterator[Exchange]:
        """Ask the broker; yield the command that the consumer gets, and the administrator's answer."""

        async def ask() -> Command:
            async with stopping(RemotingClient({})) as remoting:
                return await remoting.invoke(self._server.broker, question, 30)

        with ThreadPoolExecutor() as pool:
            asked = pool.submit(asyncio.run, ask())
            command = self._command(BILLING)
            yield Exchange(name, "Telemetry", [_shown(command)], "OK", "")
            answer.verify_message_result.nonce = command.verify_message_command.nonce
            self._sent[BILLING].put(answer)
            got = asked.result()
        shown = {"code": ResponseCode(got.code).name, "message": got.remark or ""}
        reply = {"status": shown, **json.loads(bytes(got.body) or b"{}")}
        yield Exchange(f"{name}: the administrator's answer", "", [reply], "OK", "")

    def _ends(self) -> Iterator[Exchange]:
        consumer = pb.NotifyClientTerminationRequest(group=resource("billing"))
        heartbeat = pb.HeartbeatRequest(client_type=pb.PUSH_CONSUMER, group=resource("billing"))
        yield self._call("termination of a consumer", "NotifyClientTermination", consumer, BILLING)
        yield self._call(
            "termination of a producer", "NotifyClientTermination", pb.NotifyClientTerminationRequest(), PRODUCER
        )
        yield self._call("heartbeat after the termination", "Heartbeat", heartbeat, BILLING)
        for name in ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "SyncLiteSubscription"):
            unary: Callable[..., bytes] = self._channel.unary_unary(f"/{SERVICE}/{name}")
            try:
                # All replies have a status in the first field.
                reply = pb.HeartbeatResponse.FromString(unary(b"", timeout=30, metadata=metadata_of(STRANGER)))
                yield Exchange(f"method {name}", name, [_shown(reply)], "OK", "")
            except grpc.RpcError as error:
                yield Exchange(f"method {name}", name, [], error.code().name, error.details() or "")


def _handle_in(found: Exchange) -> str:
    """Return the handle of the first message of a receive."""
    texts = [each["message"]["systemProperties"]["receiptHandle"] for each in found.replies if "message" in each]
    return str(texts[0])


def _shown(reply: Any) -> dict[str, Any]:
    shown: dict[str, Any] = MessageToDict(reply)
    return shown


def _record() -> None:
    """Write what Apache's proxy answers to the standard output."""
    with tempfile.TemporaryDirectory() as folder:
        java, servers = Java(Path(folder)), OurServers(Path(folder))
        try:
            server = apache(java, servers)
            prepare(server)
            script = GrpcScript(server)
            for exchange in script.run():
                sys.stdout.write(json.dumps(exchange._asdict(), sort_keys=True) + "\n")
            script.close()
        finally:
            java.close()


if __name__ == "__main__":
    _record()
