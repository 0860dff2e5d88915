"""Consumption of one message by each group (DefaultMQAdminExtImpl.messageTrackDetail, MessageTrack)."""

from enum import StrEnum

import msgspec

from rocketbroker.client.admin_client import AdminClient
from rocketbroker.client.errors import TopicRouteError
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.remoting.bodies.client import ConsumerConnection, ConsumeType, MessageModel
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError


class TrackType(StrEnum):
    """State of a message in a group."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


class MessageTrack(msgspec.Struct, rename="camel", frozen=True):
    """One group and a message; ``exception_desc`` says why it is not known better."""

    consumer_group: str
    track_type: TrackType
    exception_desc: str | None = None

    def __str__(self) -> str:
        reason = self.exception_desc or "null"
        fields = f"consumerGroup={self.consumer_group}, trackType={self.track_type}, exceptionDesc={reason}"
        return f"MessageTrack [{fields}]"


async def message_track_detail(admin: AdminClient, message: MessageExt) -> list[MessageTrack]:
    """Return the state of a message in each group that consumes its topic."""
    groups = await admin.query_topic_consume_by_who(message.topic)
    return [await _track(admin, message, group) for group in sorted(groups)]


async def _track(admin: AdminClient, message: MessageExt, group: str) -> MessageTrack:
    try:
        clients = await admin.examine_consumer_connection_info(group)
        return MessageTrack(group, await _track_type(admin, message, group, clients))
    except BrokerResponseError as error:
        offline = error.code == ResponseCode.CONSUMER_NOT_ONLINE
        kind = TrackType.NOT_ONLINE if offline else TrackType.UNKNOWN
        return MessageTrack(group, kind, f"CODE:{error.code} DESC:{error.remark}")
    except TopicRouteError as error:
        return MessageTrack(group, TrackType.UNKNOWN, str(error))


async def _track_type(admin: AdminClient, message: MessageExt, group: str, clients: ConsumerConnection) -> TrackType:
    if clients.consume_type is ConsumeType.CONSUME_ACTIVELY:
        return TrackType.PULL
    if clients.message_model is MessageModel.BROADCASTING:
        return TrackType.CONSUME_BROADCASTING
    if not await _consumed(admin, message, group):
        return TrackType.NOT_CONSUME_YET
    subscription = clients.subscription_table.get(message.topic)
    tags = set(subscription.tags_set) if subscription is not None else set()
    return TrackType.CONSUMED if not tags or "*" in tags or message.tags in tags else TrackType.CONSUMED_BUT_FILTERED


async def _consumed(admin: AdminClient, message: MessageExt, group: str) -> bool:
    """Return true if the group has committed an offset after the message, on the broker that stored it."""
    stats = await admin.examine_consume_stats(group, message.topic)
    names = await admin.broker_names_at(message.store_host_text)
    return any(
        queue.topic == message.topic
        and queue.queue_id == message.queue_id
        and queue.broker_name in names
        and offsets.consumer_offset > message.queue_offset
        for queue, offsets in stats.offset_table.items()
    )
