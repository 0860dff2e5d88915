"""Layout of an index file (org.apache.rocketmq.store.index.IndexFile, IndexHeader).

    file   := header slot{maxHashSlotNum} entry{maxIndexNum}
    header := int64 beginTimestamp, int64 endTimestamp, int64 beginPhyOffset, int64 endPhyOffset,
              int32 hashSlotCount, int32 indexCount                                               40 bytes
    slot   := int32 number of the newest entry, 0 if none
    entry  := int32 keyHash, int64 phyOffset, int32 timeDiff, int32 previous entry of the slot    20 bytes

Entry 0 is never used and indexCount is the number of the next entry, so that a file holds maxIndexNum - 1 keys. The
name of the file is its time of creation, ``yyyyMMddHHmmssSSS`` in local time. timeDiff is whole seconds from
beginTimestamp to the store time of the message.
"""

from struct import Struct
from typing import Final, NamedTuple

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.common.errors import CodecError

INDEX_HEADER_SIZE: Final = 40
HASH_SLOT_SIZE: Final = 4
INDEX_SIZE: Final = 20
HEADER: Final = Struct(">qqqqii")
ENTRY: Final = Struct(">iqii")
#: Defaults of ``maxHashSlotNum`` and ``maxIndexNum``.
MAX_HASH_SLOT_NUM: Final = 5_000_000
MAX_INDEX_NUM: Final = 20_000_000
#: Largest ``timeDiff`` of an entry; the smallest is 0.
MAX_TIME_DIFF: Final = 0x7FFFFFFF


class IndexHeader(NamedTuple):
    """The first 40 bytes. Times in ms since 1970, offsets in the commit log."""

    begin_timestamp: int = 0
    end_timestamp: int = 0
    begin_phy_offset: int = 0
    end_phy_offset: int = 0
    hash_slot_count: int = 0
    index_count: int = 1

    def encode(self) -> bytes:
        """Return the header's 40 bytes."""
        return HEADER.pack(*self)


def decode_header(buffer: ReadableBuffer) -> IndexHeader:
    """Return the header in ``buffer``; zeros of a new file give ``index_count`` 1, as in RocketMQ."""
    if len(buffer) < INDEX_HEADER_SIZE:
        raise CodecError(f"index header has {len(buffer)} bytes instead of {INDEX_HEADER_SIZE}")
    header = IndexHeader(*HEADER.unpack_from(buffer))
    return header if header.index_count > 0 else header._replace(index_count=1)


def file_size(hash_slot_num: int = MAX_HASH_SLOT_NUM, index_num: int = MAX_INDEX_NUM) -> int:
    """Return the bytes of an index file with this many slots and entries."""
    return INDEX_HEADER_SIZE + hash_slot_num * HASH_SLOT_SIZE + index_num * INDEX_SIZE


def slot_position(key_hash: int, hash_slot_num: int = MAX_HASH_SLOT_NUM) -> int:
    """Return the byte position of the slot of ``key_hash`` (from :func:`key_hash_of`)."""
    return INDEX_HEADER_SIZE + key_hash % hash_slot_num * HASH_SLOT_SIZE


def entry_position(index: int, hash_slot_num: int = MAX_HASH_SLOT_NUM) -> int:
    """Return the byte position of entry number ``index``."""
    return INDEX_HEADER_SIZE + hash_slot_num * HASH_SLOT_SIZE + index * INDEX_SIZE


def build_key(topic: str, key: str) -> str:
    """Return the text to hash for a key or unique id of a message in ``topic``."""
    return f"{topic}#{key}"


def build_tag_key(topic: str, tags: str) -> str:
    """Return the text to hash for the tags of a message in ``topic``; written since 5.5.0."""
    return f"{topic}#T#{tags}"


def key_hash_of(java_hash: int) -> int:
    """Return ``keyHash`` for the ``hashCode()`` of a built key: its absolute value, or 0 for the int32 without one."""
    return 0 if java_hash == -0x80000000 else abs(java_hash)
