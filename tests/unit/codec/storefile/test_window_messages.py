"""Keys and queues of many messages at once are those of each."""

from typing import NamedTuple

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.message.message_const import TRANSACTION_PREPARED_TYPE
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_properties import encode_properties
from rocketbroker.codec.message.tags_code import java_hash
from rocketbroker.codec.storefile.index_file_layout import key_hash_of
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.codec.storefile.window_messages import WindowMessages, keys_of

HOST = bytes(8)
BASE = 5000
WORDS = ["", "a", "order-1", "order-2", "a b", "  a  b ", " ", "tab\tkey", "ключ", "é 漢字 \U0001f600", "k" * 1500]


class Sent(NamedTuple):
    topic: str
    queue_id: int
    unique_key: str
    keys: str
    tags: str
    half: bool

    def record(self, number: int) -> bytes:
        named = {"UNIQ_KEY": self.unique_key, "KEYS": self.keys, "TAGS": self.tags}
        properties = encode_properties({name: value for name, value in named.items() if value})
        sys_flag = TRANSACTION_PREPARED_TYPE if self.half else 0
        topic = self.topic.encode()
        return encode_record(self.queue_id, 0, number, 0, sys_flag, 1, HOST, 2, HOST, 0, 0, b"body", topic, properties)

    def key_texts(self) -> list[str]:
        keys = [f"{self.topic}#{key}" for key in [self.unique_key, *self.keys.split(" ")] if key]
        return [*keys, f"{self.topic}#T#{self.tags}"] if self.tags else keys


SENT = st.builds(
    Sent,
    st.sampled_from(["T", "Topic", "Тема"]),
    st.integers(0, 2),
    st.sampled_from(["", "AC1100020000000000000001", "AC1100020000000000000002"]),
    st.sampled_from(WORDS),
    st.sampled_from(["", "a", "b || c", "ä"]),
    st.booleans(),
)


def window(sent: list[Sent]) -> WindowMessages:
    records = [each.record(number) for number, each in enumerate(sent)]
    lengths = np.array(list(map(len, records)), np.int64)
    return WindowMessages(Records(BASE, np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths) - lengths))


@given(st.lists(SENT, min_size=1, max_size=40))
def test_keys_are_hashed_in_the_order_in_which_they_are_entered(sent: list[Sent]):
    found = keys_of(window(sent))

    expected = [
        (number, key_hash_of(java_hash(text)), "#T#" in text)
        for number, each in enumerate(sent)
        for text in each.key_texts()
    ]
    columns = (found.numbers.tolist(), found.hashes.tolist(), found.of_tags.tolist())
    assert list(zip(*columns, strict=True)) == expected


@given(st.lists(SENT, min_size=1, max_size=40))
def test_messages_are_parted_by_queue_and_half_ones_are_in_none(sent: list[Sent]):
    found = {(topic.decode(), queue_id): members.tolist() for topic, queue_id, members in window(sent).by_queue()}

    expected: dict[tuple[str, int], list[int]] = {}
    for number, each in enumerate(sent):
        if not each.half:
            expected.setdefault((each.topic, each.queue_id), []).append(number)
    assert found == expected
