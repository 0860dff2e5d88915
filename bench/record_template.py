"""CommitLog records in bulk: numpy fills the differing fields into copies of one encoded record.

Each ``NUMBER`` in body and properties becomes the message's number, 9 decimal digits. CRC-32 and ``String.hashCode``
are sums over the digit groups (by XOR and modulo 2^32), so three tables of 1,000 values give either for any number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.message.message_decoder import BODY_POSITION, body_crc, encode_record
from rocketbroker.codec.message.message_id import host_bytes
from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.codec.message.tags_code import extend_hash, java_hash, tags_code_bytes
from rocketbroker.codec.storefile.dtypes import RECORD_HEAD
from rocketbroker.codec.storefile.index_file_layout import build_key, build_tag_key, key_hash_of

NUMBER: Final = b"#########"
MOST_MESSAGES: Final = 10 ** len(NUMBER)
HOST: Final = host_bytes("127.0.0.1", 10911)
_GROUP_DIGITS: Final = 3
_GROUPS: Final = len(NUMBER) // _GROUP_DIGITS
_GROUP_VALUES: Final = 10**_GROUP_DIGITS

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint32]


def _text_of_groups() -> Bytes:
    texts = b"".join(b"%03d" % value for value in range(_GROUP_VALUES))
    return np.frombuffer(texts, np.uint8).reshape(_GROUP_VALUES, _GROUP_DIGITS)


_GROUP_TEXTS: Final = _text_of_groups()


def groups_of(numbers: Numbers) -> list[Numbers]:
    """Return the three-digit groups of each number, highest first: ``_GROUPS`` arrays of the same shape."""
    return [numbers // _GROUP_VALUES**power % _GROUP_VALUES for power in range(_GROUPS - 1, -1, -1)]


def with_number(text: bytes, number: int) -> bytes:
    """Return ``text`` with each ``NUMBER`` replaced by a number."""
    return text.replace(NUMBER, b"%09d" % number)


@dataclass(frozen=True)
class Messages:
    """Shape of generated messages, which go to the queues of all topics in turn.

    Attributes:
        topics: topic names, all of the same length.
        queues: queues of each topic.
        body: body of each message; ``NUMBER`` is replaced by its number.
        properties: encoded properties, with the same replacement.
        first_timestamp: store time of the first message, ms.
        per_ms: messages with the same store time.
    """

    topics: tuple[str, ...]
    queues: int
    body: bytes
    properties: bytes
    first_timestamp: int
    per_ms: int = 50

    def __post_init__(self) -> None:
        if len(set(map(len, self.topics))) != 1 or not "".join(self.topics).isascii():
            raise ValueError(f"topics {self.topics} are not ASCII names of one length")

    @property
    def streams(self) -> int:
        """The number of queues of all topics."""
        return len(self.topics) * self.queues

    def place(self, stream: int) -> tuple[str, int]:
        """Return topic and queue of message ``stream`` and of every ``streams``-th message after it."""
        return self.topics[stream % len(self.topics)], stream // len(self.topics) % self.queues

    def timestamp(self, number: int) -> int:
        """Return the store time of a message in ms."""
        return self.first_timestamp + number // self.per_ms


class RecordTemplate:
    """Generator of records and of the key hashes of their index entries.

    Attributes:
        size: size of each record in bytes.
        tags_code: tags code of each ConsumeQueue entry.
        keys: index entries of each message.
    """

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        pattern = self._pattern()
        self.size = len(pattern)
        self._digits = _positions(pattern)
        self._row = np.frombuffer(pattern, np.uint8)
        self._topic_at = BODY_POSITION + len(messages.body) + 1
        self._topics = np.frombuffer("".join(messages.topics).encode(), np.uint8).reshape(len(messages.topics), -1)
        self._crc_base, self._crc_tables = _tables(messages.body, body_crc, np.bitwise_xor)
        tags, unique_key, keys, _ = find_properties(messages.properties)
        self.tags_code = tags_code_bytes(tags)
        self._key_texts = ([unique_key] if unique_key else []) + [key for key in (keys or b"").split(b" ") if key]
        self._tags = tags
        self.keys = len(self._key_texts) + (1 if tags else 0)
        self._hash_tables = [_tables(text, _hash_of, np.subtract)[1] for text in self._key_texts]
        self._hash_bases = np.array(
            [[self._base_hash(topic, text) for topic in messages.topics] for text in self._key_texts]
        )

    def _pattern(self) -> bytes:
        messages = self._messages
        return encode_record(
            queue_id=0,
            flag=0,
            queue_offset=0,
            physical_offset=0,
            sys_flag=0,
            born_timestamp=0,
            born_host=HOST,
            store_timestamp=0,
            store_host=HOST,
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=messages.body,
            topic_bytes=messages.topics[0].encode(),
            properties_bytes=messages.properties,
        )

    @staticmethod
    def _base_hash(topic: str, text: bytes) -> int:
        return extend_hash(java_hash(build_key(topic, "")), with_number(text, 0)) & 0xFFFFFFFF

    def records(self, numbers: Numbers, offsets: Numbers) -> Bytes:
        """Return the records of messages, shape (n, ``size``).

        Args:
            numbers: message numbers, shape (n,).
            offsets: their CommitLog offsets, shape (n,).
        """
        messages = self._messages
        rows = np.empty((len(numbers), self.size), np.uint8)
        rows[:] = self._row
        groups = groups_of(numbers)
        for position in self._digits:
            for index, group in enumerate(groups):
                at = position + index * _GROUP_DIGITS
                rows[:, at : at + _GROUP_DIGITS] = _GROUP_TEXTS[group]
        topics = numbers % len(messages.topics)
        rows[:, self._topic_at : self._topic_at + self._topics.shape[1]] = self._topics[topics]
        head = rows[:, : RECORD_HEAD.itemsize].view(RECORD_HEAD)[:, 0]
        head["body_crc"] = _joined(self._crc_base, self._crc_tables, groups, np.bitwise_xor)
        head["queue_id"] = numbers // len(messages.topics) % messages.queues
        head["queue_offset"] = numbers // messages.streams
        head["physical_offset"] = offsets
        head["store_timestamp"] = head["born_timestamp"] = messages.first_timestamp + numbers // messages.per_ms
        return rows

    def key_hashes(self, numbers: Numbers) -> npt.NDArray[np.int32]:
        """Return the key hashes of the index entries of messages, in insertion order, shape (n, ``keys``)."""
        hashes = np.empty((len(numbers), self.keys), np.int32)
        topics = numbers % len(self._messages.topics)
        groups = groups_of(numbers)
        for column, tables in enumerate(self._hash_tables):
            base = self._hash_bases[column].astype(np.uint32)[topics]
            signed = _joined(base, tables, groups, np.add).view(np.int32)
            hashes[:, column] = np.maximum(np.abs(signed), 0)
        if self._tags:
            of_tags = [self._tag_hash(topic) for topic in self._messages.topics]
            hashes[:, -1] = np.array(of_tags, np.int32)[topics]
        return hashes

    def _tag_hash(self, topic: str) -> int:
        return key_hash_of(extend_hash(java_hash(build_tag_key(topic, "")), self._tags or b""))


def _hash_of(text: bytes) -> int:
    return extend_hash(0, text)


def _positions(text: bytes) -> list[int]:
    found, position = [], text.find(NUMBER)
    while position >= 0:
        found.append(position)
        position = text.find(NUMBER, position + len(NUMBER))
    return found


def _tables(text: bytes, function: Callable[[bytes], int], less: np.ufunc) -> tuple[Words, list[Words]]:
    """Return the result of a function for number 0, and a table of the difference that each digit group adds."""
    base = np.array([function(with_number(text, 0)) & 0xFFFFFFFF], np.uint32)
    tables = []
    for power in range(_GROUPS - 1, -1, -1):
        numbers = [value * _GROUP_VALUES**power for value in range(_GROUP_VALUES)]
        values = [function(with_number(text, number)) & 0xFFFFFFFF for number in numbers]
        tables.append(less(np.array(values, np.uint32), base))
    return base, tables


def _joined(base: Words, tables: Sequence[Words], groups: Sequence[Numbers], more: np.ufunc) -> Words:
    result = base
    for table, group in zip(tables, groups, strict=True):
        result = more(result, table[group])
    return result
