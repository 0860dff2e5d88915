"""Store times of messages anywhere in the log, of which nothing but the head is read."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.commit_log_files import LogFile
from rocketbroker.analytics.open_store import open_folder
from rocketbroker.analytics.store_files import StoreFile, opened
from rocketbroker.codec.byte_columns import Positions, rows_at
from rocketbroker.codec.message.message_encoder import (
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    RECORD_HEADS,
)
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.common.errors import CodecError

_HEAD: Final = RECORD_HEADS[3].size
# Messages are read together where so few bytes are between them, and so many of them at the most.
_NEAR: Final = 4 << 10
_TOGETHER: Final = 1024


def stored_times(files: Sequence[LogFile], offsets: Positions) -> Positions:
    """The store times in ms of the messages that begin at ``offsets``, which ascend, shape (n,).

    Raises:
        CodecError: at one of them begins no message.
        StoreError: a file is gone.
    """
    found = []
    for file in files:
        low, high = np.searchsorted(offsets, (file.base, file.base + file.size))
        if high > low:
            with opened(open_folder(file.root), file.name, "commit-log file") as source:
                heads = _heads(source, offsets[low:high] - file.base)
            found.append(_times(heads, offsets[low:high]))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _heads(source: StoreFile, positions: Positions) -> NDArray[np.uint8]:
    """The heads at the positions, one after the other, shape (n * 112,); zeros where the file ends before."""
    heads = np.zeros((len(positions), _HEAD), np.uint8)
    memory = heads.reshape(-1).data
    for begin, end in _runs(positions):
        first = int(positions[begin])
        if end - begin == 1:
            source.read_into(first, memory[begin * _HEAD : end * _HEAD])
            continue
        length = int(positions[end - 1]) - first + _HEAD
        data = np.frombuffer(source.read_at(first, length).ljust(length, b"\0"), np.uint8)
        heads[begin:end] = rows_at(data, positions[begin:end] - first, _HEAD)
    return heads.reshape(-1)


def _runs(positions: Positions) -> Iterator[tuple[int, int]]:
    """Numbers of the positions from which and before which they are read together."""
    breaks = [0, *(np.flatnonzero(np.diff(positions) > _NEAR) + 1).tolist(), len(positions)]
    for begin, end in pairwise(breaks):
        for first in range(begin, end, _TOGETHER):
            yield first, min(first + _TOGETHER, end)


def _times(heads: NDArray[np.uint8], offsets: Positions) -> Positions:
    records = Records(0, heads, np.arange(0, len(heads), _HEAD))
    magic = records.field("magic")
    sound = (magic == MESSAGE_MAGIC_CODE_V1) | (magic == MESSAGE_MAGIC_CODE_V2)
    sound &= records.physical_offset == offsets
    if not sound.all():
        raise CodecError(f"no message begins at {offsets[int(np.flatnonzero(~sound)[0])]}")
    times: Positions = records.field("store_timestamp")
    return times
