"""Waiting messages, decoded for their copies."""

import pytest

from rocketbroker.broker.message_copy import copy_message
from rocketbroker.broker.waiting_messages import WaitingMessages
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_properties import encode_properties
from tests.support.golden_store import records
from tests.support.stores import V4_HOST, V6_HOST


@pytest.mark.parametrize("store_host", [V4_HOST, V6_HOST])
@pytest.mark.parametrize("store", ["clean", "kill9"])
def test_recorded_messages_are_copied_as_by_the_general_way(store, store_host):
    count = 0
    for _, record in records(store):
        found = decode_record(record)
        if len(found.topic) > 127:
            continue
        read = WaitingMessages(store_host).read(memoryview(record))
        copy = copy_message(
            found, "", 0, store_host, properties=found.properties_bytes, reconsume_times=found.reconsume_times
        )
        assert read == (found.queue_offset, found.store_timestamp, copy)
        count += 1
    assert count > 30


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        ({"REAL_TOPIC": "T", "REAL_QID": "3"}, ("T", 3)),
        ({"REAL_QID": "3", "TAGS": "A", "REAL_TOPIC": "T"}, ("T", 3)),
        ({"XREAL_TOPIC": "X", "REAL_TOPIC": "T", "REAL_QID": "2147483647"}, ("T", 2**31 - 1)),
        ({"REAL_TOPIC": "T", "REAL_QID": "2147483648"}, None),
        ({"REAL_TOPIC": "T", "REAL_QID": "99999999999"}, None),
        ({"REAL_TOPIC": "T", "REAL_QID": "-1"}, None),
        ({"REAL_TOPIC": "T"}, None),
        ({"REAL_QID": "3"}, None),
        ({"XREAL_TOPIC": "T", "REAL_QID": "3"}, None),
        ({"REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}, None),
    ],
)
def test_the_destination_of_a_copy_comes_from_its_properties(properties, place):
    waiting = WaitingMessages(V4_HOST)
    raw = encode_properties(properties)
    assert [waiting.place(raw) for _ in range(2)] == [place, place]


def test_the_cache_key_is_the_whole_place():
    waiting = WaitingMessages(V4_HOST)
    for queue_id in (1, 2):
        assert waiting.place(encode_properties({"REAL_QID": str(queue_id), "REAL_TOPIC": "T"})) == ("T", queue_id)
    assert waiting.place(encode_properties({"REAL_QID": "9", "REAL_TOPIC": "T", "REAL_QID2": "1"})) == ("T", 9)
