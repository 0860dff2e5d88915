"""Files of ``config/``: topics.json, consumerOffset.json and others (ConfigManager.encode(true)).

file := one fastjson object (codec/remoting/fastjson.py), pretty: TAB for each level, no space after the colon,
        no newline at the end
"""

from collections.abc import Mapping
from typing import Any, Final, TypeVar

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable, body_from
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.common.errors import CodecError

#: Far above the size that a broker writes (a topic takes some 250 bytes), far below one that would fill the memory.
MAX_CONFIG_SIZE = 256 << 20


def loads_config(buffer: ReadableBuffer) -> dict[Any, Any]:
    """Return the object in a config file; integer keys may be quoted or not, and stay as they are.

    :class:`CodecError` if it is not a JSON object, as after an interrupted write: its ``.bak`` holds the version
    before.
    """
    value = fastjson.loads(buffer, max_size=MAX_CONFIG_SIZE)
    if not isinstance(value, dict):
        raise CodecError(f"a config file must hold one JSON object, not {type(value).__name__}")
    return value


def dumps_config(value: Mapping[Any, Any]) -> bytes:
    """Return ``value`` as RocketMQ writes it to a config file, keys in the mapping's order."""
    return fastjson.dumps(value, indent="\t")


#: Suffix of a file's earlier version (org.apache.rocketmq.common.ConfigManager).
BACKUP: Final = ".bak"
# Field with the table, for each of these files.
_FIELDS: Final = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "consumerOrderInfo.json": "table",
    "delayOffset.json": "offsetTable",
    "timerProgress.json": "slotEntries",
    "consumerFilter.json": "filterDataByTopic",
    "messageRequestMode.json": "messageRequestModeMap",
}

T = TypeVar("T", bound=RemotingSerializable)


def is_table(name: str) -> bool:
    """Return true if a file of ``config/``, or the backup of one, holds a table."""
    return name.removesuffix(BACKUP).endswith(".json")


def load_table(name: str, data: ReadableBuffer) -> dict[Any, Any]:
    """Return the object in the file ``name`` or its backup; :class:`CodecError` without its table."""
    table = loads_config(data)
    field = _FIELDS.get(name.removesuffix(BACKUP))
    if field is not None and not isinstance(table.get(field), dict):
        raise CodecError(f"it has no table {field}")
    return table


def decode_table(name: str, data: ReadableBuffer, kind: type[T]) -> T:
    """Decode the file ``name`` or its backup as ``kind``.

    Raises:
        CodecError: It is not a JSON object, lacks its table, or a field is missing or of the wrong type.
    """
    return body_from(load_table(name, data), kind)


def rule_of_damage(name: str) -> AuditRule:
    """Return the rule that the file ``name`` breaks if ``load_table`` cannot read it."""
    return AuditRule.CONFIG_BACKUP_DAMAGED if name.endswith(BACKUP) else AuditRule.CONFIG_DAMAGED
