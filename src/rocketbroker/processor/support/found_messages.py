"""Rights on a message that a request finds by something else than its topic, such as an offset."""

from rocketbroker.auth.request_rights import Actions
from rocketbroker.auth.requester import Requester
from rocketbroker.codec.message.message_const import PROPERTY_REAL_TOPIC, PROPERTY_RETRY_TOPIC
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.topic_validator import (
    DLQ_GROUP_TOPIC_PREFIX,
    RETRY_GROUP_TOPIC_PREFIX,
    is_system_topic,
)


def topics_of(message: MessageExt) -> list[str]:
    """Return the topics by which a stored message is known: its own, then that in which consumers find it.

    A half, delayed or timer message waits in a system topic, a retry in the topic of its group. Whoever may read the
    real topic may read the copy, too. REAL_TOPIC of a message elsewhere is its sender's and says nothing.
    """
    topics = [message.topic]
    if is_system_topic(message.topic) and (real := message.get_property(PROPERTY_REAL_TOPIC)):
        topics.append(real)
    if topics[-1].startswith((RETRY_GROUP_TOPIC_PREFIX, DLQ_GROUP_TOPIC_PREFIX)) and (
        origin := message.get_property(PROPERTY_RETRY_TOPIC)
    ):
        topics.append(origin)
    return topics


def check_found(requester: Requester | None, message: MessageExt, actions: Actions, group: str = "") -> None:
    """Reject the request unless its user has one of the actions on a topic of the message.

    Args:
        requester: the user; ``None`` if rights are not checked.
        message: the message found.
        actions: the actions.
        group: group of the request, whose right was checked.

    Raises:
        BrokerResponseError: NO_PERMISSION.
    """
    if requester is not None:
        what = f"the message found at offset {message.commit_log_offset}"
        requester.check(what, topics_of(message), actions, group)


def check_found_record(requester: Requester | None, record: bytes, actions: Actions, group: str = "") -> None:
    """Check the rights on a record as ``check_found`` does; it is decoded only if there is a user to ask about."""
    if requester is not None and requester.is_limited:
        check_found(requester, decode_record(record, read_body=False), actions, group)
