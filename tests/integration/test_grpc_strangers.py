"""A user of a broker's gRPC port tries what it knows of another: receipts, handles, ids of clients and transactions.

Each call names what the stranger may use, and so passes the check of rights.
"""

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from rocketbroker.proxy import messaging_pb2 as pb
from rocketbroker.proxy.message_conversion import to_duration
from rocketbroker.testing import RocketMQServer
from tests.support.grpc_calls import method, signed
from tests.support.proxy_calls import message
from tests.support.waiting import LIMIT_S

USERS = {"owner": "owner-secret", "stranger": "stranger-secret"}
TYPES = ("NORMAL", "DELAY", "TRANSACTION")
POLICIES = {name: {**{f"Topic:{name}_{kind}": "Pub,Sub" for kind in TYPES}, f"Group:{name}": "Sub"} for name in USERS}
# Both users are clients of this id.
CLIENT_ID = "client-1"


class Client:
    """A client of a user, which has a topic for each type of messages, and a group.

    Args:
        channel: connection to the port.
        name: of the user, and of what belongs to it.
    """

    def __init__(self, channel: grpc.Channel, name: str) -> None:
        self._channel = channel
        self._metadata = signed((name, USERS[name]), CLIENT_ID)
        self.group = pb.Resource(name=name)
        self.topics = {kind: pb.Resource(name=f"{name}_{kind}") for kind in TYPES}

    def ask(self, call: str, request: Any) -> Any:
        """Return the reply to a call, or its replies."""
        return method(self._channel, call)(request, self._metadata)

    def code(self, call: str, request: Any) -> int:
        """Return the code of the reply to a call."""
        return int(self.ask(call, request).status.code)

    def send(self, kind: str, **system: Any) -> Any:
        """Send a message; return its entry in the reply."""
        sent = message(b"of the owner", self.topics[kind].name, message_type=getattr(pb, kind), **system)
        reply = self.ask("SendMessage", pb.SendMessageRequest(messages=[sent]))
        assert reply.status.code == pb.OK, reply
        return reply.entries[0]

    def receive(self, kind: str = "NORMAL") -> str:
        """Receive the message of a topic; return its receipt handle."""
        receive = pb.ReceiveMessageRequest(
            group=self.group,
            message_queue=pb.MessageQueue(topic=self.topics[kind]),
            batch_size=8,
            invisible_duration=to_duration(60_000),
            long_polling_timeout=to_duration(10_000),
        )
        found = [reply.message for reply in self.ask("ReceiveMessage", receive) if reply.HasField("message")]
        assert [each.body for each in found] == [b"of the owner"]
        return str(found[0].system_properties.receipt_handle)

    def with_handle(self, handle: str, kind: str = "NORMAL") -> dict[str, Any]:
        """Return the fields of a call about a message."""
        return {"topic": self.topics[kind], "group": self.group, "receipt_handle": handle}

    def settings(self) -> pb.TelemetryCommand:
        """Return the settings of a consumer."""
        entry = pb.SubscriptionEntry(topic=self.topics["NORMAL"])
        subscription = pb.Subscription(group=self.group, subscriptions=[entry])
        return pb.TelemetryCommand(settings=pb.Settings(client_type=pb.SIMPLE_CONSUMER, subscription=subscription))

    def end(self, transaction_id: str, resolution: "pb.TransactionResolution") -> pb.EndTransactionRequest:
        """Return the request that ends a transaction."""
        return pb.EndTransactionRequest(
            topic=self.topics["TRANSACTION"],
            message_id=transaction_id,
            transaction_id=transaction_id,
            resolution=resolution,
            source=pb.SOURCE_CLIENT,
        )


@pytest.fixture(scope="module")
def server() -> Iterator[RocketMQServer]:
    with RocketMQServer({"recallMessageEnable": "true"}, users=USERS, policies=POLICIES, grpc=True) as mq:
        for name in USERS:
            for kind in TYPES:
                mq.create_topic(f"{name}_{kind}", kind)
        yield mq


@pytest.fixture
def channel(server: RocketMQServer) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(server.endpoints) as made:
        yield made


@pytest.fixture
def owner(channel: grpc.Channel) -> Client:
    return Client(channel, "owner")


@pytest.fixture
def stranger(channel: grpc.Channel) -> Client:
    return Client(channel, "stranger")


def test_a_receipt_of_another_users_message_ends_delays_and_copies_nothing(
    server: RocketMQServer, owner: Client, stranger: Client
):
    owner.send("NORMAL")
    receipt = owner.receive()
    fields = stranger.with_handle(receipt)
    entry = pb.AckMessageEntry(receipt_handle=receipt)
    ack = pb.AckMessageRequest(topic=fields["topic"], group=fields["group"], entries=[entry])
    delay = pb.ChangeInvisibleDurationRequest(**fields, invisible_duration=to_duration(3_600_000))
    forward = pb.ForwardMessageToDeadLetterQueueRequest(**fields)
    # Each passes the check of rights; an acknowledgement without a message is OK, as at Apache's proxy.
    assert stranger.code("AckMessage", ack) == pb.OK
    assert "offset is illegal" in stranger.ask("ChangeInvisibleDuration", delay).status.message
    assert stranger.code("ForwardMessageToDeadLetterQueue", forward) == pb.INVALID_RECEIPT_HANDLE
    assert server.dead_letters("stranger") == []

    own = pb.ChangeInvisibleDurationRequest(**owner.with_handle(receipt), invisible_duration=to_duration(0))
    assert owner.code("ChangeInvisibleDuration", own) == pb.OK
    again = pb.AckMessageEntry(receipt_handle=owner.receive())
    ack = pb.AckMessageRequest(topic=owner.topics["NORMAL"], group=owner.group, entries=[again])
    assert owner.code("AckMessage", ack) == pb.OK


def test_a_client_of_the_same_id_takes_and_ends_nothing_of_another_user(owner: Client, stranger: Client):
    ended = threading.Event()

    def commands(client: Client) -> Iterator[pb.TelemetryCommand]:
        yield client.settings()
        ended.wait(LIMIT_S)

    def heartbeat(client: Client) -> int:
        return client.code("Heartbeat", pb.HeartbeatRequest(group=client.group, client_type=pb.SIMPLE_CONSUMER))

    streams = [client.ask("Telemetry", commands(client)) for client in (owner, stranger)]
    try:
        for client, stream in zip((owner, stranger), streams, strict=True):
            assert next(stream).settings.subscription.group == client.group
        termination = pb.NotifyClientTerminationRequest(group=stranger.group)
        assert stranger.code("NotifyClientTermination", termination) == pb.OK
        assert heartbeat(stranger) == pb.UNRECOGNIZED_CLIENT_TYPE
        assert heartbeat(owner) == pb.OK
        assert streams[0].is_active()
    finally:
        ended.set()
    assert list(streams[0]) == []


def test_a_transaction_is_ended_by_users_of_its_topic_alone(server: RocketMQServer, owner: Client, stranger: Client):
    transaction_id = owner.send("TRANSACTION").transaction_id
    reply = stranger.ask("EndTransaction", stranger.end(transaction_id, pb.ROLLBACK))
    assert "is not open at this server" in reply.status.message
    assert owner.code("EndTransaction", owner.end(transaction_id, pb.COMMIT)) == pb.OK
    server.wait_until(lambda: server.assert_messages("owner_TRANSACTION", [b"of the owner"]))


def test_a_delayed_message_is_recalled_by_users_of_its_topic_alone(owner: Client, stranger: Client):
    in_an_hour = Timestamp(seconds=int(time.time()) + 3600)
    handle = owner.send("DELAY", delivery_timestamp=in_an_hour).recall_handle
    assert handle
    recall = pb.RecallMessageRequest(topic=stranger.topics["DELAY"], recall_handle=handle)
    reply = stranger.ask("RecallMessage", recall)
    assert reply.status.code != pb.OK
    assert "topic not match" in reply.status.message
    recall.topic.CopyFrom(owner.topics["DELAY"])
    assert owner.code("RecallMessage", recall) == pb.OK
