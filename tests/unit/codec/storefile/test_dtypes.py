"""The numpy dtypes lay over the same bytes as the structs."""

import numpy as np
import pytest

from rocketbroker.codec.message.message_decoder import RECORD_HEAD
from rocketbroker.codec.storefile import consume_queue_layout, dtypes, index_file_layout
from tests.support import golden_store


def flat(row: np.void) -> list[int | bytes]:
    """The fields of ``row`` with host addresses and ports put together, as the struct gives them."""
    values: list[int | bytes] = []
    for name in row.dtype.names or ():
        if name.endswith("_ip"):
            values.append(bytes(row[name]) + int(row[name.replace("_ip", "_port")]).to_bytes(4, "big"))
        elif not name.endswith("_port"):
            values.append(int(row[name]))
    return values


@pytest.mark.parametrize("name", golden_store.NAMES)
def test_record_heads(name: str) -> None:
    for _, record in golden_store.records(name):
        head = np.frombuffer(record, dtypes.RECORD_HEAD, count=1)[0]
        if not int(head["sys_flag"]) & 0x30:
            assert flat(head) == list(RECORD_HEAD.unpack_from(record))


@pytest.mark.parametrize(
    ("dtype", "layout", "prefix", "start"),
    [
        (dtypes.CONSUME_QUEUE_ENTRY, consume_queue_layout.ENTRY, "consumequeue/", 0),
        (dtypes.BATCH_CONSUME_QUEUE_ENTRY, consume_queue_layout.BATCH_ENTRY, "batchconsumequeue/", 0),
        (dtypes.INDEX_ENTRY, index_file_layout.ENTRY, "index/", index_file_layout.entry_position(0, 50)),
    ],
)
def test_entries(dtype: np.dtype, layout: object, prefix: str, start: int) -> None:
    assert dtype.itemsize == layout.size  # type: ignore[attr-defined]
    for path, data in golden_store.files("clean").items():
        if path.startswith(prefix):
            rows = np.frombuffer(data, dtype, offset=start)
            assert [tuple(row) for row in rows.tolist()] == list(
                layout.iter_unpack(data[start:])  # type: ignore[attr-defined]
            )


def test_sizes() -> None:
    assert dtypes.RECORD_HEAD.itemsize == RECORD_HEAD.size == 88
    assert dtypes.INDEX_SLOT.itemsize == index_file_layout.HASH_SLOT_SIZE
