"""Validation of names for the tables of the name server.

Topics follow RocketMQ's rule. Brokers are named after their host by default, so names of brokers and clusters may also
have dots and colons. RocketMQ creates topics with the name of a broker or cluster, dots included.
"""

import re

from rocketbroker.codec.message.topic_validator import (
    RETRY_OR_DLQ_TOPIC_MAX_LENGTH,
    is_topic_or_group_illegal,
    validate_topic,
)
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, shown

NAME_MAX_LENGTH = 255

_BROKER = re.compile(r"[%|a-zA-Z0-9_-][%|a-zA-Z0-9_.:-]*")
_HOST = re.compile(r"[\x21-\x7e]+")
_PORT_MAX = 65_535


def is_registered_topic(topic: str, broker_name: str, cluster_name: str) -> bool:
    """Return true if a topic is valid by the topic rule, or has the name of the broker or its cluster."""
    if validate_topic(topic).valid:
        return True
    if len(topic) > RETRY_OR_DLQ_TOPIC_MAX_LENGTH:
        return False
    rest = topic.replace(broker_name, "").replace(cluster_name, "")
    return rest != topic and not is_topic_or_group_illegal(rest)


def check_topic(topic: str) -> None:
    """Reject an invalid topic name.

    Raises:
        BrokerResponseError: INVALID_PARAMETER; the topic rule does not allow the name.
    """
    result = validate_topic(topic)
    if not result.valid:
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, result.remark)


def check_broker_name(kind: str, name: str) -> None:
    """Reject an invalid name; ``kind`` is ``brokerName`` or ``clusterName``.

    Raises:
        BrokerResponseError: INVALID_PARAMETER; the name is empty, too long or has other characters.
    """
    if len(name) > NAME_MAX_LENGTH or _BROKER.fullmatch(name) is None:
        wanted = f"^[%|a-zA-Z0-9_.:-]+$ without a dot or colon at its start, at most {NAME_MAX_LENGTH} characters"
        raise _refusal(kind, name, wanted)


def check_address(address: str) -> None:
    """Reject an invalid address.

    Raises:
        BrokerResponseError: INVALID_PARAMETER; not ``host:port``.
    """
    host, _, port = address.rpartition(":")
    fits = len(address) <= NAME_MAX_LENGTH and _HOST.fullmatch(host) is not None
    if not (fits and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= _PORT_MAX):
        raise _refusal("brokerAddr", address, "host:port, such as 192.0.2.1:10911")


def check_key(kind: str, name: str) -> None:
    """Reject an invalid key; ``kind`` is ``namespace``, ``key``, or the name of an address that is only passed on.

    Raises:
        BrokerResponseError: INVALID_PARAMETER; the name is empty, too long or has blanks or control characters.
    """
    if not 0 < len(name) <= NAME_MAX_LENGTH or " " in name or not name.isprintable():
        raise _refusal(kind, name, f"1 to {NAME_MAX_LENGTH} characters without blanks and control characters")


def _refusal(kind: str, name: str, wanted: str) -> BrokerResponseError:
    text = f"the {kind} '{shown(name)}' is not allowed; use {wanted}"
    return BrokerResponseError(ResponseCode.INVALID_PARAMETER, text)
