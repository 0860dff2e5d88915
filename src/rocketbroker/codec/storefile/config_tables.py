"""Tables in the files of ``config/``. A file without its table is damaged; it is not an empty table."""

from typing import Any, Final, TypeVar

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable, body_from
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.config_json import loads_config
from rocketbroker.common.errors import CodecError

#: Suffix of a file's earlier version (org.apache.rocketmq.common.ConfigManager).
BACKUP: Final = ".bak"
# Field with the table, for each of these files.
_FIELDS: Final = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "timerProgress.json": "slotEntries",
    "consumerFilter.json": "filterDataByTopic",
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
