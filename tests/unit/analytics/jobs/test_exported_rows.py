"""Rows that mqadmin writes are those of an export by Spark, and become messages again."""

import base64
import subprocess
import sys
import zlib
from typing import Any

import pytest

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.jobs.exported_rows import (
    NO_MESSAGE,
    Origin,
    Ready,
    TargetQueues,
    exported_row,
    prepare,
    queue_of_number,
    replay_row,
    row_in_json,
)
from rocketbroker.client.core.message import Message
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
from rocketbroker.codec.message.message_ext import MessageQueue
from tests.support.stored_message import stored


def test_a_row_has_the_columns_of_messages():
    row = exported_row(stored(b"body", properties={"KEYS": "k1 k2", "own": "value"}), "broker-a")
    assert list(row) == MESSAGE_SCHEMA.names
    assert (row["keys"], row["properties"]["own"], row["queue_offset"]) == ("k1 k2", "value", 5)


def test_the_body_of_a_row_is_decompressed_and_says_so():
    # As the client decodes it: the flag is that of the stored body.
    message = stored(b"body", sys_flag=COMPRESSED_FLAG | COMPRESSION_ZLIB_TYPE)
    row = exported_row(message, "a")
    assert (row["sys_flag"], row["body_crc"]) == (0, zlib.crc32(b"body") & 0x7FFFFFFF)
    ready = prepare(row, {"T": "U"})
    assert isinstance(ready, Ready)
    assert (ready.message.topic, ready.message.body, ready.queue) == ("U", b"body", ("a", "T", 1))


def test_a_row_of_json_has_its_body_in_base64():
    assert row_in_json({"body": base64.b64encode(b"\xff").decode()})["body"] == b"\xff"
    assert row_in_json({})["body"] == b""
    with pytest.raises(ValueError, match=r"base64|character|padding"):
        row_in_json({"body": "?"})


def test_a_row_without_the_values_of_a_message_is_none():
    assert prepare({}, {}) == NO_MESSAGE
    assert prepare({"topic": "T"}, {}) == NO_MESSAGE


def test_neither_pyspark_nor_pyarrow_is_needed():
    modules = "sys, rocketbroker.app.mqadmin.transfer, rocketbroker.app.mqadmin.transfer_import"
    code = f"import {modules}; print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("column", "value"),
    [("properties", [1]), ("topic", 5), ("queue_id", "0"), ("store_timestamp", "z"), ("properties", {"a": 1})],
)
def test_a_row_with_values_of_other_types_is_none(column: str, value: Any):
    row = exported_row(stored(b"body"), "a")
    assert isinstance(prepare(row, {}), Ready)
    assert prepare({**row, column: value}, {}) == NO_MESSAGE
    assert replay_row({**row, column: value}) is None


def test_a_large_body_is_left_out_with_the_limit_as_the_reason():
    row = exported_row(stored(b"body"), "a")
    assert prepare(row, {}, 3) == "body over 3 bytes"
    assert isinstance(prepare(row, {}, 4), Ready)


def test_queues_of_all_brokers_have_a_target_of_their_own():
    targets = TargetQueues()
    origins = [Origin(broker, topic, queue) for broker in "ab" for topic in "TU" for queue in range(2)]
    numbers = [targets.number(origin) for origin in origins]
    assert numbers == [0, 1, 0, 1, 2, 3, 2, 3]
    assert [targets.number(origin) for origin in origins] == numbers
    queues = [MessageQueue("T", broker, queue) for broker in "xy" for queue in range(2)]
    assert [queue_of_number(number, queues, Message("T", b"b")) for number in (0, 3, 4)] == [
        queues[0],
        queues[3],
        queues[0],
    ]
