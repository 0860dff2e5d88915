"""Who has consumed a message."""

import pytest

from rocketbroker.client.admin_client import AdminClient
from rocketbroker.client.message_track import TrackType, message_track_detail
from rocketbroker.codec.message.message_decoder import decode_record, encode_record
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.remoting.bodies.client import (
    Connection,
    ConsumerConnection,
    ConsumeType,
    MessageModel,
    SubscriptionData,
)
from rocketbroker.codec.remoting.bodies.offset import ConsumeStats, OffsetWrapper
from rocketbroker.codec.remoting.bodies.remoting_serializable import GroupList
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.scripted_server import ScriptedServer, name_server, route_of

PUSH, PULL = ConsumeType.CONSUME_PASSIVELY, ConsumeType.CONSUME_ACTIVELY
CLUSTERING, BROADCASTING = MessageModel.CLUSTERING, MessageModel.BROADCASTING


@pytest.mark.parametrize(
    ("kind", "model", "consumed", "tags", "expected"),
    [
        (PULL, CLUSTERING, 9, [], TrackType.PULL),
        (PUSH, BROADCASTING, 9, [], TrackType.CONSUME_BROADCASTING),
        (PUSH, CLUSTERING, 5, [], TrackType.NOT_CONSUME_YET),
        (PUSH, CLUSTERING, 6, [], TrackType.CONSUMED),
        (PUSH, CLUSTERING, 6, ["demo"], TrackType.CONSUMED),
        (PUSH, CLUSTERING, 6, ["other"], TrackType.CONSUMED_BUT_FILTERED),
    ],
)
async def test_the_clients_and_offsets_tell(
    kind: ConsumeType, model: MessageModel, consumed: int, tags: list[str], expected: TrackType
):
    subscription = SubscriptionData("T", "*", 1, tags)
    clients = ConsumerConnection([Connection("id", "h:1")], {"T": subscription}, kind, model)
    stats = ConsumeStats({MessageQueue("T", "broker-a", 2): OffsetWrapper(10, consumed)})
    assert await track_of(response(body=clients.encode()), stats) == (expected, None)


@pytest.mark.parametrize(
    ("code", "expected"),
    [(ResponseCode.CONSUMER_NOT_ONLINE, TrackType.NOT_ONLINE), (ResponseCode.SYSTEM_ERROR, TrackType.UNKNOWN)],
)
async def test_a_refusal_is_reported(code: int, expected: TrackType):
    assert await track_of(response(code, "why"), ConsumeStats()) == (expected, f"CODE:{int(code)} DESC:why")


async def track_of(clients: Command, stats: ConsumeStats) -> tuple[TrackType, str | None]:
    """The track of a message at offset 5 of queue 2 with tag ``demo``."""
    scripts = {
        RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: lambda _fields, _body: response(body=GroupList(["CG"]).encode()),
        RequestCode.GET_CONSUMER_CONNECTION_LIST: lambda _fields, _body: clients,
        RequestCode.GET_CONSUME_STATS: lambda _fields, _body: response(body=stats.encode()),
    }
    async with ScriptedServer({int(code): script for code, script in scripts.items()}) as broker:
        route = route_of({"broker-a": broker.address})
        host = host_bytes("127.0.0.1", int(broker.address.rpartition(":")[2]))
        properties = encode_properties({"TAGS": "demo"})
        message = decode_record(encode_record(2, 0, 5, 0, 0, 1, host, 2, host, 0, 0, b"x", b"T", properties))
        async with name_server({"T": route, "%RETRY%CG": route}) as names, AdminClient(names.address) as admin:
            (track,) = await message_track_detail(admin, message)
    assert track.consumer_group == "CG"
    return track.track_type, track.exception_desc
