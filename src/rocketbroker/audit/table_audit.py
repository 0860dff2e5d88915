"""Checks of the checkpoint and of the tables of ``config/``."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rocketbroker.audit.findings import Findings
from rocketbroker.audit.store_files import CHECKPOINT, CONFIG, StoreFolder
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.config_tables import BACKUP, is_table, load_table, rule_of_damage
from rocketbroker.codec.storefile.file_rules import check_checkpoint
from rocketbroker.common.errors import CodecError, StoreError

CONSUMER_OFFSETS: Final = "consumerOffset.json"
DELETED_TOPICS: Final = "deletedTopics.json"

#: Group and consumer offset of each consumer, by topic and queue number.
ConsumerOffsets = Mapping[tuple[str, int], Sequence[tuple[str, int]]]


def _read(folder: StoreFolder, path: str, findings: Findings) -> bytes | None:
    """Return the bytes of a file, ``None`` without any; a file that the system cannot read is a finding."""
    try:
        return folder.read_if_there(path)
    except StoreError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        findings.add(AuditRule.FILE_UNREADABLE, path, 0, str(error.__cause__.strerror))
        return None


def check_tables(folder: StoreFolder, findings: Findings) -> dict[str, dict[Any, Any]]:
    """Return the readable tables by the name of their file; a backup stands in for a file that is not readable."""
    tables = {}
    for name in filter(is_table, folder.files(CONFIG)):
        data = _read(folder, f"{CONFIG}/{name}", findings)
        try:
            if data is not None:
                tables[name] = load_table(name, data)
        except CodecError as error:
            findings.add(rule_of_damage(name), f"{CONFIG}/{name}", 0, str(error))
    return {name.removesuffix(BACKUP): tables[name] for name in sorted(tables, reverse=True)}


def check_checkpoint_file(folder: StoreFolder, newest_ms: int | None, findings: Findings) -> None:
    """Check the checkpoint (``check_checkpoint``); without one the next start checks everything."""
    data = _read(folder, CHECKPOINT, findings)
    if data is not None:
        findings.add_faults(check_checkpoint(CHECKPOINT, data, newest_ms))


def consumer_offsets(table: Mapping[Any, Any]) -> ConsumerOffsets:
    """Return the consumers of each queue in consumerOffset.json; fields of another type are left out."""
    found = dict[tuple[str, int], list[tuple[str, int]]]()
    groups = table.get("offsetTable")
    for name, offsets in (groups if isinstance(groups, dict) else {}).items():
        topic, _, group = str(name).partition("@")
        for queue_id, offset in (offsets if isinstance(offsets, dict) else {}).items():
            if isinstance(offset, int):
                found.setdefault((topic, int(queue_id)), []).append((group, offset))
    return found


def check_consumer_offsets(
    offsets: ConsumerOffsets, queue_ends: Mapping[tuple[str, int], int], findings: Findings, *, unclean: bool
) -> None:
    """Compare consumer offsets with the ends of the queues; the next start after an unclean stop sets them back."""
    for (topic, queue_id), consumers in offsets.items():
        end = queue_ends.get((topic, queue_id))
        for group, offset in consumers if end is not None else ():
            if offset > (end or 0):
                text = f"group {group} is at {offset} of {topic}/{queue_id}, but the queue ends at {end}"
                findings.add(
                    AuditRule.CONSUMER_OFFSET_BEYOND_QUEUE,
                    f"{CONFIG}/{CONSUMER_OFFSETS}",
                    0,
                    text,
                    mended=unclean,
                    queue=(topic, queue_id, None),
                )
