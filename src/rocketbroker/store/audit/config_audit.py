"""Checks the checkpoint and the tables of ``config/``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.checkpoint_layout import StoreCheckpoint, decode_checkpoint
from rocketbroker.codec.storefile.config_tables import BACKUP, is_table, load_table, rule_of_damage
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.errors import CodecError
from rocketbroker.store.audit.findings import Findings

_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


def check_checkpoint(path: Path, newest_ms: int | None, findings: Findings) -> None:
    """Hold the checkpoint against the store time of the newest message, ``None`` for a log without messages."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return  # without it the next start checks everything
    except OSError as error:
        findings.add(AuditRule.FILE_UNREADABLE, path, 0, str(error.strerror))
        return
    try:
        checkpoint = decode_checkpoint(data)
    except CodecError as error:
        findings.add(AuditRule.CHECKPOINT_DAMAGED, path, 0, str(error))
        return
    _check_times(path, checkpoint, newest_ms, findings)


def _check_times(path: Path, checkpoint: StoreCheckpoint, newest_ms: int | None, findings: Findings) -> None:
    for number, name in enumerate(_TIMES):
        at = getattr(checkpoint, name)
        if at < 0:
            findings.add(AuditRule.CHECKPOINT_DAMAGED, path, number * 8, f"{name} is {at}")
        elif newest_ms is not None and at > newest_ms:
            text = f"{name} is {at}, the newest message was stored at {newest_ms}"
            findings.add(AuditRule.CHECKPOINT_AHEAD, path, number * 8, text)


def check_config(directory: Path, findings: Findings) -> dict[str, Mapping[Any, Any]]:
    """Read the tables; gives those that could be read, by the file's name."""
    tables = {}
    for path in _tables(directory):
        try:
            tables[path.name] = load_table(path.name, path.read_bytes())
        except OSError as error:
            findings.add(AuditRule.FILE_UNREADABLE, path, 0, str(error.strerror))
        except CodecError as error:
            findings.add(rule_of_damage(path.name), path, 0, str(error))
    return {name: table for name, table in tables.items() if not name.endswith(BACKUP)}


def _tables(directory: Path) -> Iterator[Path]:
    if directory.is_dir():
        for path in sorted(directory.iterdir()):
            if path.is_file() and is_table(path.name):
                yield path


def check_consumer_offsets(
    path: Path,
    table: Mapping[Any, Any],
    queue_ends: Mapping[tuple[str, int], int],
    state: StoreState,
    findings: Findings,
) -> None:
    """Hold consumer offsets against the ends of the queues: after an unclean stop the next start sets them back."""
    groups = table.get("offsetTable")
    for name, offsets in (groups if isinstance(groups, dict) else {}).items():
        topic, _, group = str(name).partition("@")
        for queue_id, offset in (offsets if isinstance(offsets, dict) else {}).items():
            end = queue_ends.get((topic, int(queue_id)))
            if end is not None and isinstance(offset, int) and offset > end:
                text = f"group {group} is at {offset} of {topic}/{queue_id}, which ends at {end}"
                findings.add(AuditRule.CONSUMER_OFFSET_BEYOND_QUEUE, path, 0, text, mended=state.unclean)


def deleted_before(table: Mapping[Any, Any]) -> dict[str, int]:
    """By topic the physical offset before which messages were deleted with it (``DeletedTopics``)."""
    marks = table.get("deleted")
    if not isinstance(marks, dict):
        return {}
    return {str(topic): offset for topic, offset in marks.items() if isinstance(offset, int)}
