"""ConsumeQueue entries against the records they point to."""

import pytest

from rocketbroker.codec.message.message_const import INNER_BATCH_FLAG
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.codec.storefile import consume_queue_layout as layout
from rocketbroker.codec.storefile.consume_queue_layout import inner_batch, inner_count
from rocketbroker.common.errors import CorruptRecordError
from tests.support import golden_store


def entries(name: str) -> list[tuple[str, int, int, tuple[int, int, int], bytes]]:
    """Topic, queue, queue offset, fields and bytes of each written entry of a golden store."""
    found = []
    for path, data in golden_store.files(name).items():
        if path.startswith("consumequeue/"):
            _, topic, queue_id, base = path.split("/")
            for at in range(0, len(data), layout.CQ_STORE_UNIT_SIZE):
                offset, size, code = layout.ENTRY.unpack_from(data, at)
                if layout.is_written(size) and not layout.is_filler(offset, size):
                    number = (int(base) + at) // layout.CQ_STORE_UNIT_SIZE
                    found.append((topic, int(queue_id), number, (offset, size, code), data[at : at + 20]))
    return found


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_every_golden_entry_points_to_its_record(name: str) -> None:
    records = dict(golden_store.records(name))
    found = entries(name)
    queues = golden_store.manifest(name)["consumequeues"]
    assert len(found) == sum(queue["entries"] for queue in queues.values()) > 150
    for topic, queue_id, number, (offset, size, code), data in found:
        message = decode_record(records[offset])
        assert (message.topic, message.queue_id, message.queue_offset, message.store_size) == (
            topic,
            queue_id,
            number,
            size,
        )
        if topic != "SCHEDULE_TOPIC_XXXX":
            assert code == tags_code(message.tags)
        assert layout.ENTRY.pack(offset, size, code) == data


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_the_golden_batch_entry(name: str) -> None:
    data = golden_store.files(name)["batchconsumequeue/StBatchCQ/0/" + "0" * 20]
    (want,) = golden_store.manifest(name)["batch_consumequeues"]["StBatchCQ/0"]["entries"]
    fields = layout.BATCH_ENTRY.unpack_from(data)
    assert fields == tuple(want.values())
    assert fields[6] == layout.INVALID_COMPACTED_OFFSET
    assert layout.BATCH_ENTRY.pack(*fields) == data[: layout.BATCH_CQ_STORE_UNIT_SIZE]
    assert not any(data[layout.BATCH_CQ_STORE_UNIT_SIZE :])


def test_the_filler() -> None:
    assert layout.FILLER_ENTRY.hex() == "0000000000000000" + "7fffffff" + "0000000000000000"
    assert layout.is_filler(*layout.ENTRY.unpack(layout.FILLER_ENTRY)[:2])
    assert not layout.is_filler(0, 245)
    assert not layout.is_written(0)


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
