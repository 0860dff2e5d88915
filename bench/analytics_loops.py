"""Plain struct loops, the baseline for the decoder."""

import mmap
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Final

_V1, _V2 = 0xDAA320A7, 0xDAA320AB
_SIZE_MAGIC: Final = Struct(">iI")
_HEAD: Final = Struct(">4xi4xqqi")  # after the magic code: queue, queue offset, physical offset, sysFlag
_INT, _LONG = Struct(">i"), Struct(">q")


def _logs(root: Path) -> Iterator[mmap.mmap]:
    for path in sorted((root / "commitlog").iterdir()):
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as data:
            yield data


def head_loop(root: Path) -> int:
    """Read the columns ``analytics_cases.HEAD`` into lists and return the number of messages."""
    queue_ids, queue_offsets, offsets = list[int](), list[int](), list[int]()
    stored, flags, sizes = list[int](), list[int](), list[int]()
    for data in _logs(root):
        at, end = 0, len(data)
        while at + 8 <= end:
            size, magic = _SIZE_MAGIC.unpack_from(data, at)
            if magic not in {_V1, _V2}:
                break
            queue_id, queue_offset, offset, flag = _HEAD.unpack_from(data, at + 8)
            queue_ids.append(queue_id)
            queue_offsets.append(queue_offset)
            offsets.append(offset)
            flags.append(flag)
            stored.append(_LONG.unpack_from(data, at + (68 if flag & 16 else 56))[0])
            sizes.append(size)
            at += size
    return len(sizes)


def pruned_loop(root: Path) -> int:
    """Read the columns ``analytics_cases.PRUNED`` into lists and return the number of messages."""
    topics, queue_ids, stored, sizes = list[str](), list[int](), list[int](), list[int]()
    for data in _logs(root):
        at, end = 0, len(data)
        while at + 8 <= end:
            size, magic = _SIZE_MAGIC.unpack_from(data, at)
            if magic not in {_V1, _V2}:
                break
            flag = data[at + 39]
            stored_at = at + (68 if flag & 16 else 56)
            body_at = stored_at + (40 if flag & 32 else 28)
            topic_at = body_at + 4 + _INT.unpack_from(data, body_at)[0]
            if magic == _V1:
                topics.append(data[topic_at + 1 : topic_at + 1 + data[topic_at]].decode())
            else:
                topics.append(data[topic_at + 2 : topic_at + 2 + (data[topic_at] << 8 | data[topic_at + 1])].decode())
            queue_ids.append(_INT.unpack_from(data, at + 12)[0])
            stored.append(_LONG.unpack_from(data, stored_at)[0])
            sizes.append(size)
            at += size
    return len(sizes)


def time_bounds(root: Path) -> tuple[int, int]:
    """Return the store times (ms) of the first message and, from the checkpoint, of the last one."""
    with min((root / "commitlog").iterdir()).open("rb") as file:
        head = file.read(76)
    first = _LONG.unpack_from(head, 68 if head[39] & 16 else 56)[0]
    return first, _LONG.unpack_from((root / "checkpoint").read_bytes(), 0)[0]
