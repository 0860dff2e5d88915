"""Reads queues, index files and what waits by plain loops over struct, sharing no code with the package."""

import re
import struct
from pathlib import Path
from typing import Any

from tests.support.slow_store_reader import slow_rows

Row = dict[str, Any]


def slow_consume_queue(root: Path, broker: str) -> list[Row]:
    """Return the table ``consume_queue`` of a sound store."""
    rows = []
    for kind, unit in (("consumequeue", struct.Struct(">qiq")), ("batchconsumequeue", struct.Struct(">qiqqqhii"))):
        for path in sorted((root / kind).glob("*/*/*")):
            data = path.read_bytes()
            for at in range(0, len(data) - unit.size + 1, unit.size):
                fields = unit.unpack_from(data, at)
                if fields[1] == 0 or fields[:2] == (0, 0x7FFFFFFF):
                    continue
                rows.append(
                    {
                        "broker": broker,
                        "topic": path.parts[-3],
                        "queue_id": int(path.parts[-2]),
                        "queue_offset": fields[4] if len(fields) > 3 else (int(path.name) + at) // 20,
                        "physical_offset": fields[0],
                        "size": fields[1],
                        "tags_code": fields[2],
                        "batch_size": fields[5] if len(fields) > 3 else 1,
                    }
                )
    return sorted(rows, key=_place)


def slow_index(root: Path, broker: str, slots: int) -> list[Row]:
    """Return the table ``index`` of a sound store; times in ms."""
    rows = []
    for path in sorted((root / "index").iterdir()):
        data = path.read_bytes()
        begin, _, _, _, _, count = struct.unpack_from(">qqqqii", data)
        for number in range(1, count):
            key_hash, offset, seconds, previous = struct.unpack_from(">iqii", data, 40 + slots * 4 + number * 20)
            rows.append(
                {
                    "broker": broker,
                    "file": path.name,
                    "entry": number,
                    "key_hash": key_hash,
                    "physical_offset": offset,
                    "store_timestamp": begin + seconds * 1000,
                    "previous_entry": previous,
                }
            )
    return rows


def slow_level_offsets(root: Path) -> dict[int, int]:
    """Return the delivered offset of each delay level."""
    text = (root / "config" / "delayOffset.json").read_text().partition('"offsetTable"')[2]
    return {int(level): int(offset) for level, offset in re.findall(r'"?(\d+)"?\s*:\s*(\d+)', text)}


def slow_waiting_levels(root: Path, broker: str) -> list[Row]:
    """Return the waiting messages of delay levels: level, due time and the most telling columns."""
    offsets = slow_level_offsets(root)
    records = {row["physical_offset"]: row for row in slow_rows(root / "commitlog")}
    rows = []
    for entry in slow_consume_queue(root, broker):
        level = entry["queue_id"] + 1
        if entry["topic"] == "SCHEDULE_TOPIC_XXXX" and entry["queue_offset"] >= offsets.get(level, 0):
            record = records[entry["physical_offset"]]
            rows.append(
                {
                    "broker": broker,
                    "kind": "level",
                    "delay_level": level,
                    "due_timestamp": entry["tags_code"],
                    "real_topic": record["properties"]["REAL_TOPIC"],
                    "real_queue_id": int(record["properties"]["REAL_QID"]),
                    "origin_topic": record["properties"].get("RETRY_TOPIC"),
                    "cancelled": False,
                    **{name: record[name] for name in _OF_RECORD},
                }
            )
    return rows


_OF_RECORD = (
    "topic", "queue_id", "queue_offset", "physical_offset", "store_timestamp", "born_timestamp", "reconsume_times",
    "uniq_key", "keys", "tags", "size",
)  # fmt: skip


def slow_dead_letters(root: Path, broker: str) -> list[Row]:
    """Return the table ``dead_letters`` of a sound store; times in ms."""
    rows = []
    for record in slow_rows(root / "commitlog"):
        if record["topic"].startswith("%DLQ%"):
            properties = record["properties"]
            rows.append(
                {
                    "broker": broker,
                    "group_name": record["topic"].removeprefix("%DLQ%"),
                    "origin_topic": properties.get("RETRY_TOPIC", properties.get("DLQ_ORIGIN_TOPIC")),
                    "origin_message_id": properties.get("ORIGIN_MESSAGE_ID", properties.get("DLQ_ORIGIN_MESSAGE_ID")),
                    "real_topic": properties.get("REAL_TOPIC"),
                    "max_reconsume_times": int(properties["MAX_RECONSUME_TIMES"])
                    if "MAX_RECONSUME_TIMES" in properties
                    else None,
                    **{name: record[name] for name in (*_OF_RECORD, "msg_id", "body", "sys_flag", "properties")},
                }
            )
    return rows


def _place(row: Row) -> tuple[Any, ...]:
    return row["topic"], row["queue_id"], row["queue_offset"]
