"""Rows that mqadmin writes are those of an export by Spark, and become messages again."""

import base64
import subprocess
import sys
import zlib

import pytest

from rocketbroker.analytics.columns.message_schema import MESSAGE_SCHEMA
from rocketbroker.analytics.jobs.exported_rows import NO_MESSAGE, Ready, exported_row, prepare, row_in_json
from rocketbroker.codec.message.message_const import COMPRESSED_FLAG, COMPRESSION_ZLIB_TYPE
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
    assert (ready.message.topic, ready.message.body, ready.queue) == ("U", b"body", ("T", 1))


def test_a_row_of_json_has_its_body_in_base64():
    assert row_in_json({"body": base64.b64encode(b"\xff").decode()})["body"] == b"\xff"
    assert row_in_json({})["body"] == b""
    with pytest.raises(ValueError, match=r"base64|character|padding"):
        row_in_json({"body": "?"})


def test_a_row_without_the_values_of_a_message_is_none():
    assert prepare({}, {}) == NO_MESSAGE
    assert prepare({"topic": "T"}, {}) == NO_MESSAGE


def test_neither_pyspark_nor_pyarrow_is_needed():
    code = (
        "import sys, rocketbroker.app.mqadmin.transfer; print([m for m in ('pyspark', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
