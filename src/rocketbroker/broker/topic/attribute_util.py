"""Known attributes of topics and groups, and changes to them by requests (AttributeUtil, TopicAttributes).

A request names each attribute after a sign: ``+queue.type=BatchCQ`` adds or changes, ``-queue.type`` deletes.
Attributes are stored without the sign.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from rocketbroker.codec.remoting.bodies.topic_config import QUEUE_TYPE
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError


@dataclass(frozen=True, slots=True)
class Attribute:
    """One known attribute: ``changeable`` after creation, its valid values in words, and their test.

    ``unserved`` are values of RocketMQ that this broker's store does not support.
    """

    changeable: bool
    takes: str
    accepts: Callable[[str], bool]
    unserved: frozenset[str] = frozenset()


def _one_of(*values: str, changeable: bool = False, unserved: frozenset[str] = frozenset()) -> Attribute:
    return Attribute(changeable, " or ".join(values), lambda value: value in values, unserved)


CLEANUP_POLICY = "cleanup.policy"
COMPACTION = "COMPACTION"

TOPIC_ATTRIBUTES: Mapping[str, Attribute] = {
    QUEUE_TYPE: _one_of("BatchCQ", "SimpleCQ"),
    CLEANUP_POLICY: _one_of("DELETE", unserved=frozenset({COMPACTION})),
    "message.type": _one_of("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED", changeable=True),
}


def unserved_attribute(attributes: Mapping[str, str]) -> str | None:
    """Return ``name=value`` of an attribute that this broker does not support; a store taken over may have it."""
    for name, attribute in TOPIC_ATTRIBUTES.items():
        if attributes.get(name) in attribute.unserved:
            return f"{name}={attributes[name]}"
    return None


def alter_attributes(
    known: Mapping[str, Attribute], current: Mapping[str, str] | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes after a request.

    Args:
        known: the known attributes.
        current: attributes of the existing topic, ``None`` for a new one.
        changes: values by name with its sign; the value of a ``-`` is ignored.

    Raises:
        BrokerResponseError: SYSTEM_ERROR, naming the attribute that is unknown, unchangeable, missing or has a wrong
            value.
    """
    altered = dict(current or {})
    seen: set[str] = set()
    for signed_name, value in changes.items():
        sign, name = signed_name[:1], signed_name[1:]
        _check_name(signed_name, name, seen)
        if sign == "+":
            _check_value(known, name, value, creating=current is None)
            altered[name] = value
        elif current is None:
            _refuse(f"only add attribute is supported while creating topic. key: {name}")
        elif sign != "-":
            _refuse(f"wrong format key: {name}")
        else:
            _check_deletable(known, name, current)
            del altered[name]
    return altered


def _check_name(signed_name: str, name: str, seen: set[str]) -> None:
    if not name or "+" in name or "-" in name:
        _refuse(f"kv string format wrong. key: {signed_name!r}, use a name with one + or - before it")
    if name in seen:
        _refuse(f"alter duplication key. key: {name}")
    seen.add(name)


def _check_value(known: Mapping[str, Attribute], name: str, value: str, *, creating: bool) -> None:
    attribute = _attribute(known, name)
    if not creating and not attribute.changeable:
        _refuse(f"attempt to update an unchangeable attribute. key: {name}")
    if value in attribute.unserved:
        _refuse(f"{name}={value} is not supported by this broker; use {attribute.takes}")
    if not attribute.accepts(value):
        _refuse(f"value is not in set: {name}={value}; use {attribute.takes}")


def _check_deletable(known: Mapping[str, Attribute], name: str, current: Mapping[str, str]) -> None:
    if name not in current:
        _refuse(f"attempt to delete a nonexistent key: {name}")
    if not _attribute(known, name).changeable:
        _refuse(f"attempt to update an unchangeable attribute. key: {name}")


def _attribute(known: Mapping[str, Attribute], name: str) -> Attribute:
    attribute = known.get(name)
    if attribute is None:
        _refuse(f"unsupported key: {name}")
    return attribute


def _refuse(remark: str) -> NoReturn:
    raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
