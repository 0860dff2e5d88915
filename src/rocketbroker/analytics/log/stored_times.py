"""Store times of messages anywhere in the log, read from the record heads alone."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rocketbroker.analytics.files.commit_log_files import LogFile
from rocketbroker.analytics.files.open_store import open_folder
from rocketbroker.analytics.files.store_files import opened
from rocketbroker.codec.message.columns import Positions
from rocketbroker.codec.message.message_decoder import MESSAGE_MAGIC_CODE_V1, MESSAGE_MAGIC_CODE_V2, RECORD_HEADS
from rocketbroker.codec.storefile.record_columns import Records
from rocketbroker.common.errors import CodecError

#: Bytes of the longest head.
HEAD_SIZE: Final = RECORD_HEADS[3].size


def stored_times(files: Sequence[LogFile], offsets: Positions) -> Positions:
    """Return the store times in ms of the messages that begin at ``offsets``, which ascend, shape (n,).

    Raises:
        CodecError: no message begins at one of the offsets.
    """
    found = []
    for file in files:
        low, high = np.searchsorted(offsets, (file.base, file.base + file.size))
        if high > low:
            with opened(open_folder(file.root), file.name, "commit-log file") as source:
                heads = source.read_each((offsets[low:high] - file.base).tolist(), HEAD_SIZE)
            starts = np.arange(0, len(heads), HEAD_SIZE)
            found.append(times_at(np.frombuffer(heads, np.uint8), starts, offsets[low:high]))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def times_at(data: NDArray[np.uint8], starts: Positions, offsets: Positions) -> Positions:
    """Return the store times in ms of the messages at ``starts`` in ``data``, which have the physical ``offsets``."""
    records = Records(0, data, starts)
    magic = records.field("magic")
    sound = (magic == MESSAGE_MAGIC_CODE_V1) | (magic == MESSAGE_MAGIC_CODE_V2)
    sound &= records.physical_offset == offsets
    if not sound.all():
        raise CodecError(f"no message begins at {offsets[int(np.flatnonzero(~sound)[0])]}")
    times: Positions = records.field("store_timestamp")
    return times
