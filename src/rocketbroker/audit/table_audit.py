"""Checks of the checkpoint and of the tables of ``config/``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rocketbroker.audit.findings import Findings
from rocketbroker.codec.storefile.audit_rules import AuditRule
from rocketbroker.codec.storefile.config_tables import BACKUP, is_table, load_table, rule_of_damage
from rocketbroker.codec.storefile.file_rules import check_checkpoint
from rocketbroker.codec.storefile.store_state import StoreState
from rocketbroker.common.errors import CodecError


def audit_checkpoint(path: Path, newest_ms: int | None, findings: Findings) -> None:
    """Check the checkpoint (``check_checkpoint``); without one the next start checks everything."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return
    except OSError as error:
        findings.add(AuditRule.FILE_UNREADABLE, path, 0, str(error.strerror))
        return
    findings.add_faults(check_checkpoint(str(path), data, newest_ms))


def check_config(directory: Path, findings: Findings) -> dict[str, Mapping[Any, Any]]:
    """Return the readable tables by the name of their file."""
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


def consumer_offset(table: Mapping[Any, Any], group: str, topic: str, queue_id: int) -> int:
    """Return the offset of a group in a queue, -1 without one."""
    groups = table.get("offsetTable")
    offsets = groups.get(f"{topic}@{group}") if isinstance(groups, dict) else None
    found = offsets.get(queue_id, offsets.get(str(queue_id))) if isinstance(offsets, dict) else None
    return found if isinstance(found, int) else -1


def check_consumer_offsets(
    path: Path,
    table: Mapping[Any, Any],
    queue_ends: Mapping[tuple[str, int], int],
    state: StoreState,
    findings: Findings,
) -> None:
    """Compare consumer offsets with the ends of the queues; the next start after an unclean stop sets them back."""
    groups = table.get("offsetTable")
    for name, offsets in (groups if isinstance(groups, dict) else {}).items():
        topic, _, group = str(name).partition("@")
        for queue_id, offset in (offsets if isinstance(offsets, dict) else {}).items():
            end = queue_ends.get((topic, int(queue_id)))
            if end is not None and isinstance(offset, int) and offset > end:
                text = f"group {group} is at {offset} of {topic}/{queue_id}, but the queue ends at {end}"
                findings.add(AuditRule.CONSUMER_OFFSET_BEYOND_QUEUE, path, 0, text, mended=state.unclean)
