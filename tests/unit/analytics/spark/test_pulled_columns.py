"""Pulled messages as columns; the store's own columns of the same records are the model."""

import logging
import zlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from rocketbroker.analytics import read_store
from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.spark.pulled_columns import PULLED_SCHEMA, pulled_batches, pulled_records
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG, INNER_BATCH_FLAG, NEED_UNWRAP_FLAG
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.common.errors import StoreError
from tests.support.commit_log_writer import CommitLogWriter
from tests.support.fake_queues import record

QUEUE = MessageQueue("T", "broker-a", 3)
PROPERTIES = b"KEYS\x01k\x02color\x01red\x02size\x019\x02"


def rows(body: bytes, *names: str, properties: tuple[str, ...] | None = None) -> list[dict[str, Any]]:
    schema = pa.schema([PULLED_SCHEMA.field(name) for name in names]) if names else PULLED_SCHEMA
    batches = pulled_batches(QUEUE, pulled_records(QUEUE, body), schema.remove_metadata(), properties)
    return [row for batch in batches for row in batch.to_pylist()]


def test_columns_are_those_of_the_store(tmp_path: Path) -> None:
    writer = CommitLogWriter(tmp_path / "broker-a")
    writer.append_many(120)
    stored = [row for batch in read_store(writer.root) for row in batch.to_pylist()]
    sent = b"".join(path.read_bytes()[at : at + size] for path, at, size in writer.records)
    assert rows(sent) == stored
    assert PULLED_SCHEMA.equals(MESSAGE_SCHEMA)
    assert rows(b"") == []


def test_bodies_come_decompressed_and_without_the_flag() -> None:
    text = b"a body " * 50
    packed = record(QUEUE, 0, zlib.compress(text), sys_flag=COMPRESSED_FLAG | 0x4) + record(QUEUE, 1, b"plain")
    assert [tuple(row.values()) for row in rows(packed, "sys_flag", "body")] == [(4, text), (0, b"plain")]
    (row,) = rows(record(QUEUE, 0, zlib.compress(text), sys_flag=COMPRESSED_FLAG), "body_crc", "size", "sys_flag")
    assert row["body_crc"] == zlib.crc32(zlib.compress(text)) & 0x7FFFFFFF
    assert (row["sys_flag"], row["size"]) == (0, len(record(QUEUE, 0, zlib.compress(text))))


def test_a_body_that_is_damaged_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    sent = bytearray(record(QUEUE, 7, b"body"))
    sent[88] ^= 1
    with caplog.at_level(logging.WARNING):
        assert rows(bytes(sent), "queue_offset") == [{"queue_offset": 7}]
        assert not caplog.records
        assert rows(bytes(sent), "body") == [{"body": b"cody"}]
        assert rows(record(QUEUE, 8, b"no zlib", sys_flag=COMPRESSED_FLAG), "body") == [{"body": None}]
    assert [text.partition(": ")[0] for text in caplog.messages] == ["rocketmq://broker-a"] * 2
    assert "position 700" in caplog.messages[0]


def test_chosen_properties_are_kept() -> None:
    sent = b"".join(record(QUEUE, 0, properties=text) for text in (PROPERTIES, b"", b"size\x01\x02KEYS\x01j\x02"))
    assert [row["properties"] for row in rows(sent, "properties", properties=("size", "KEYS", "none"))] == [
        [("KEYS", "k"), ("size", "9")],
        [],
        [("KEYS", "j")],
    ]
    assert [row["properties"] for row in rows(sent, "properties", properties=())] == [[], [], []]
    assert rows(sent, "keys", properties=("size",)) == [{"keys": "k"}, {"keys": None}, {"keys": "j"}]


@pytest.mark.parametrize("cut", [1, 3, 50, 95])
def test_an_answer_that_is_cut_is_an_error(cut: int) -> None:
    sent = record(QUEUE, 0, PROPERTIES)
    with pytest.raises(StoreError, match=f"queue 3 of T at broker-a: .* no valid record at byte {len(sent)}"):
        pulled_records(QUEUE, sent + sent[:-cut])


def test_other_bytes_are_an_error() -> None:
    sent = record(QUEUE, 0)
    for wrong in (b"\0" * 200, sent + b"x" * 100, sent[:4] + b"\0\0\0\0" + sent[8:]):
        with pytest.raises(StoreError, match="has no valid record at byte"):
            pulled_records(QUEUE, wrong)


def test_a_batch_in_one_record_is_refused() -> None:
    with pytest.raises(StoreError, match=r"queue.type=BatchCQ.*read them from the store by format"):
        pulled_records(QUEUE, record(QUEUE, 0, sys_flag=INNER_BATCH_FLAG | NEED_UNWRAP_FLAG))
