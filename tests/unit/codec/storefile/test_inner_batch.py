"""What the entry of a batch queue needs of its record."""

import pytest

from rocketbroker.codec.message.message_sys_flag import INNER_BATCH_FLAG
from rocketbroker.codec.storefile.inner_batch import inner_batch, inner_count
from rocketbroker.common.errors import CorruptRecordError
from tests.support import golden_store


def test_the_record_that_rocketmq_wrote():
    entry = golden_store.manifest("clean")["batch_consumequeues"]["StBatchCQ/0"]["entries"][0]
    record = dict(golden_store.records("clean"))[entry["phyOffset"]]
    assert inner_batch(record) == (entry["storeTime"], entry["batchSize"])


@pytest.mark.parametrize("text", ["0", "-3", "x", "99999", "32768", "", "1.5", "²"])
def test_an_invalid_number_counts_as_one(text: str):
    assert inner_count(INNER_BATCH_FLAG, f"A\x01b\x02INNER_NUM\x01{text}\x02".encode()) == 1


def test_only_a_batch_has_a_number():
    properties = b"INNER_NUM\x0132767\x02"
    assert (inner_count(INNER_BATCH_FLAG, properties), inner_count(0, properties)) == (32767, 1)


def test_no_record():
    with pytest.raises(CorruptRecordError):
        inner_batch(bytes(200))
