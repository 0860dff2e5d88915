"""Many records of a stretch of a commit log at once: positions of their variable parts, fixed fields as one gather.

Apart from the decoder, since importing numpy takes longer than a broker's start may.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rocketbroker.codec.byte_columns import Positions, gather
from rocketbroker.codec.message.message_encoder import (
    BODY_POSITION,
    BORN_HOST_POSITION,
    MESSAGE_MAGIC_CODE_V1,
    MESSAGE_MAGIC_CODE_V2,
    STORE_HOST_POSITION,
)
from rocketbroker.codec.message.message_sys_flag import (
    BORNHOST_V6_FLAG,
    HOST_V4_LENGTH,
    HOST_V6_LENGTH,
    STOREHOSTADDRESS_V6_FLAG,
)
from rocketbroker.codec.storefile.dtypes import RECORD_HEAD

_V6_EXTRA = HOST_V6_LENGTH - HOST_V4_LENGTH


class Records:
    """Records at ``starts``: ascending positions in ``data``, whose first byte has the physical offset ``base``.

    Lengths and positions are int64 arrays, one element a record; positions count from the beginning of ``data``.
    The constructor trusts the start positions only: see :meth:`sound`.
    """

    def __init__(self, base: int, data: NDArray[np.uint8], starts: Positions) -> None:
        self.base = base
        self.data = data
        self.starts = starts
        self.sys_flag = gather(data, ">i4", starts + _offset_of("sys_flag")).astype(np.int32)
        self.born_extra: Positions = np.where(self.sys_flag & BORNHOST_V6_FLAG, _V6_EXTRA, 0)
        self.extra = self.born_extra + np.where(self.sys_flag & STOREHOSTADDRESS_V6_FLAG, _V6_EXTRA, 0)
        self.total_size = self.field("total_size").astype(np.int64)
        self.body_at = self._inside(starts + BODY_POSITION + self.extra)
        self.body_length = self.field("body_length").astype(np.int64)
        self._locate_topic_and_properties()

    def __len__(self) -> int:
        return len(self.starts)

    def field(self, name: str) -> NDArray[Any]:
        """The big-endian values of the field ``name`` of ``codec.storefile.dtypes.RECORD_HEAD``."""
        at = _offset_of(name)
        positions = self.starts + at
        if at > STORE_HOST_POSITION:
            positions = positions + self.extra
        elif at > BORN_HOST_POSITION:
            positions = positions + self.born_extra
        return gather(self.data, _dtype_of(name), self._inside(positions, _dtype_of(name).itemsize))

    @property
    def store_host_at(self) -> Positions:
        """Where the store hosts begin."""
        return self.starts + STORE_HOST_POSITION + self.born_extra

    def sound(self) -> bool:
        """Whether at every start stands a record: its magic code, its own offset, and lengths that add up."""
        magic = self.field("magic")
        ends = self.properties_at + self.properties_length
        return bool(
            ((magic == MESSAGE_MAGIC_CODE_V1) | (magic == MESSAGE_MAGIC_CODE_V2)).all()
            and (self.field("physical_offset") == self.starts + self.base).all()
            and (ends == self.starts + self.total_size).all()
            and min(self.body_length.min(), self.topic_length.min(), self.properties_length.min()) >= 0
        )

    def _locate_topic_and_properties(self) -> None:
        at = self._inside(self.body_at + self.body_length, 2)
        is_v2 = self.field("magic") == MESSAGE_MAGIC_CODE_V2
        self.topic_length = np.where(is_v2, gather(self.data, ">i2", at), self.data[at]).astype(np.int64)
        self.topic_at = at + np.where(is_v2, 2, 1)
        at = self._inside(self.topic_at + self.topic_length, 2)
        self.properties_length = gather(self.data, ">i2", at).astype(np.int64)
        self.properties_at = at + 2

    def _inside(self, positions: Positions, length: int = 0) -> Positions:
        """``positions`` moved so that ``length`` bytes are there: a broken record's lengths may point anywhere."""
        return np.clip(positions, 0, len(self.data) - length)


def _offset_of(name: str) -> int:
    fields = RECORD_HEAD.fields
    assert fields is not None
    return fields[name][1]


def _dtype_of(name: str) -> np.dtype[Any]:
    return RECORD_HEAD[name]
