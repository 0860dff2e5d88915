"""The table that each file of ``config/`` holds; without it a broker would come up with an empty one."""

from typing import Any, Final

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.config_json import loads_config
from rocketbroker.common.errors import CodecError

#: Ends the name of a file's earlier version (org.apache.rocketmq.common.ConfigManager).
BACKUP: Final = ".bak"
# What RocketMQ and we read of these files.
_FIELDS: Final = {
    "topics.json": "topicConfigTable",
    "subscriptionGroup.json": "subscriptionGroupTable",
    "consumerOffset.json": "offsetTable",
    "delayOffset.json": "offsetTable",
    "timerProgress.json": "slotEntries",
}


def is_table(name: str) -> bool:
    """Whether a file of ``config/``, or the backup of one, holds a table."""
    return name.removesuffix(BACKUP).endswith(".json")


def load_table(name: str, data: ReadableBuffer) -> dict[Any, Any]:
    """The object in the file ``name`` or its backup; :class:`CodecError` when it is none, or lacks its table."""
    table = loads_config(data)
    field = _FIELDS.get(name.removesuffix(BACKUP))
    if field is not None and not isinstance(table.get(field), dict):
        raise CodecError(f"it has no table {field}")
    return table


def rule_of_damage(name: str) -> AuditRule:
    """The rule that the file ``name`` breaks when ``load_table`` cannot read it."""
    return AuditRule.CONFIG_BACKUP_DAMAGED if name.endswith(BACKUP) else AuditRule.CONFIG_DAMAGED
