"""Which names may key the tables of the name server (org.apache.rocketmq.common.topic.TopicValidator).

A topic has the characters ``%|a-zA-Z0-9_-`` and at most 127 of them (255 for ``%RETRY%`` and ``%DLQ%``). Brokers are
named after their host by default, so that their names and those of clusters may hold dots as well; RocketMQ makes
topics that carry the name of a broker or cluster, dots included.
"""

import re

from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

TOPIC_MAX_LENGTH = 127
RETRY_OR_DLQ_TOPIC_MAX_LENGTH = 255
NAME_MAX_LENGTH = 255
_SHOWN = 64

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_BROKER = re.compile(r"[%|a-zA-Z0-9_-][%|a-zA-Z0-9_.-]*")
_PRINTABLE = re.compile(r"[^\x00-\x20\x7f]+")
_PORT_MAX = 65_535


def is_topic(topic: str) -> bool:
    """Whether RocketMQ's topic rule allows the name."""
    special = topic.startswith(("%RETRY%", "%DLQ%"))
    limit = RETRY_OR_DLQ_TOPIC_MAX_LENGTH if special else TOPIC_MAX_LENGTH
    return len(topic) <= limit and _TOPIC.fullmatch(topic) is not None


def is_registered_topic(topic: str, broker_name: str, cluster_name: str) -> bool:
    """Whether a broker may register the topic: by the topic rule, or as one that is named after it or its cluster."""
    if is_topic(topic):
        return True
    if len(topic) > RETRY_OR_DLQ_TOPIC_MAX_LENGTH:
        return False
    rest = topic.replace(broker_name, "").replace(cluster_name, "")
    return rest != topic and (not rest or _TOPIC.fullmatch(rest) is not None)


def check_topic(topic: str) -> None:
    """Raises:
    BrokerResponseError: INVALID_PARAMETER; the topic rule does not allow the name.
    """
    if not is_topic(topic):
        raise _refusal("topic", topic, f"^[%|a-zA-Z0-9_-]+$, at most {TOPIC_MAX_LENGTH} characters")


def check_broker_name(kind: str, name: str) -> None:
    """``kind`` is ``brokerName`` or ``clusterName``.

    Raises:
        BrokerResponseError: INVALID_PARAMETER; the name is empty, too long or has other characters.
    """
    if len(name) > NAME_MAX_LENGTH or _BROKER.fullmatch(name) is None:
        wanted = f"^[%|a-zA-Z0-9_.-]+$, no dot at its start, at most {NAME_MAX_LENGTH} characters"
        raise _refusal(kind, name, wanted)


def check_address(address: str) -> None:
    """Raises:
    BrokerResponseError: INVALID_PARAMETER; not ``host:port``.
    """
    host, _, port = address.rpartition(":")
    fits = len(address) <= NAME_MAX_LENGTH and _PRINTABLE.fullmatch(host) is not None
    if not (fits and port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) <= _PORT_MAX):
        raise _refusal("brokerAddr", address, "host:port, such as 192.0.2.1:10911")


def check_key(kind: str, name: str) -> None:
    """``kind`` is ``namespace`` or ``key`` of the key-value configuration, whose keys may be addresses.

    Raises:
        BrokerResponseError: INVALID_PARAMETER; the name is empty, too long or has blanks or control characters.
    """
    if len(name) > NAME_MAX_LENGTH or _PRINTABLE.fullmatch(name) is None:
        raise _refusal(kind, name, f"1 to {NAME_MAX_LENGTH} characters without blanks and control characters")


def _refusal(kind: str, name: str, wanted: str) -> BrokerResponseError:
    shown = repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")
    return BrokerResponseError(ResponseCode.INVALID_PARAMETER, f"the {kind} {shown} is not allowed; right is: {wanted}")
