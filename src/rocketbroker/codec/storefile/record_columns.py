"""Many records of a stretch of a commit log at once: positions of their variable parts, fixed fields as one gather.

Apart from the decoder, since importing numpy takes longer than a broker's start may.
"""

from functools import cached_property
from typing import Any, Final

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

_V6_EXTRA: Final = HOST_V6_LENGTH - HOST_V4_LENGTH
_LONGEST_HEAD: Final = BODY_POSITION + 2 * _V6_EXTRA


class Records:
    """Records at ``starts``: ascending positions in ``data``, whose first byte has the physical offset ``base``.

    Lengths and positions are int64 arrays, one element a record; positions count from the beginning of ``data``. Each
    is made when it is asked for. The constructor trusts the start positions only: see :meth:`sound`.
    """

    def __init__(self, base: int, data: NDArray[np.uint8], starts: Positions) -> None:
        self.base = base
        self.data = data
        self.starts = starts
        self._heads_inside = not len(starts) or int(starts[-1]) + _LONGEST_HEAD <= len(data)

    def __len__(self) -> int:
        return len(self.starts)

    @cached_property
    def sys_flag(self) -> NDArray[np.int32]:
        """Bits of MessageSysFlag."""
        return gather(self.data, ">i4", self.starts + _offset_of("sys_flag")).astype(np.int32)

    @cached_property
    def total_size(self) -> Positions:
        """Bytes of the whole records."""
        return self.field("total_size").astype(np.int64)

    @cached_property
    def body_at(self) -> Positions:
        """Where the bodies begin."""
        return self._inside(self.starts + BODY_POSITION + self._extra)

    @cached_property
    def body_length(self) -> Positions:
        """Bytes of the bodies."""
        return self.field("body_length").astype(np.int64)

    @property
    def topic_at(self) -> Positions:
        """Where the topics begin."""
        return self._topic[0]

    @property
    def topic_length(self) -> Positions:
        """Bytes of the topics."""
        return self._topic[1]

    @property
    def properties_at(self) -> Positions:
        """Where the properties begin."""
        return self._properties[0]

    @property
    def properties_length(self) -> Positions:
        """Bytes of the properties."""
        return self._properties[1]

    @property
    def store_host_at(self) -> Positions:
        """Where the store hosts begin."""
        return self.starts + STORE_HOST_POSITION + self._born_extra

    def field(self, name: str) -> NDArray[Any]:
        """The big-endian values of the field ``name`` of ``codec.storefile.dtypes.RECORD_HEAD``."""
        at, kind = _offset_of(name), _dtype_of(name)
        positions = self.starts + at
        if at > STORE_HOST_POSITION:
            positions = positions + self._extra
        elif at > BORN_HOST_POSITION:
            positions = positions + self._born_extra
        return gather(self.data, kind, positions if self._heads_inside else self._inside(positions, kind.itemsize))

    def sound(self) -> bool:
        """Whether at every start stands a record: its magic code, its own offset, and lengths that add up."""
        return bool(self.sound_each().all())

    def sound_each(self, offsets: Positions | None = None) -> NDArray[np.bool_]:
        """At which starts stands a record, shape (n,).

        ``offsets`` are the physical offsets that they should have, where ``data`` is not one stretch of the log.
        """
        magic = self.field("magic")
        expected = self.starts + self.base if offsets is None else offsets
        found: NDArray[np.bool_] = (magic == MESSAGE_MAGIC_CODE_V1) | (magic == MESSAGE_MAGIC_CODE_V2)
        found &= self.field("physical_offset") == expected
        found &= self.properties_at + self.properties_length == self.starts + self.total_size
        return found & (np.minimum(np.minimum(self.body_length, self.topic_length), self.properties_length) >= 0)

    @cached_property
    def _born_extra(self) -> Positions:
        """Bytes by which an IPv6 born host is longer than an IPv4 one."""
        return np.where(self.sys_flag & BORNHOST_V6_FLAG, _V6_EXTRA, 0)

    @cached_property
    def _extra(self) -> Positions:
        """Bytes by which both hosts are longer."""
        return self._born_extra + np.where(self.sys_flag & STOREHOSTADDRESS_V6_FLAG, _V6_EXTRA, 0)

    @cached_property
    def _topic(self) -> tuple[Positions, Positions]:
        at = self._inside(self.body_at + self.body_length, 2)
        is_v2 = self.field("magic") == MESSAGE_MAGIC_CODE_V2
        if not is_v2.any():
            return at + 1, self.data[at].astype(np.int64)
        length = np.where(is_v2, gather(self.data, ">i2", at), self.data[at]).astype(np.int64)
        return at + np.where(is_v2, 2, 1), length

    @cached_property
    def _properties(self) -> tuple[Positions, Positions]:
        at = self._inside(self.topic_at + self.topic_length, 2)
        return at + 2, gather(self.data, ">i2", at).astype(np.int64)

    def _inside(self, positions: Positions, length: int = 0) -> Positions:
        """``positions`` moved so that ``length`` bytes are there: a broken record's lengths may point anywhere."""
        return np.clip(positions, 0, len(self.data) - length)


def _offset_of(name: str) -> int:
    fields = RECORD_HEAD.fields
    assert fields is not None
    return fields[name][1]


def _dtype_of(name: str) -> np.dtype[Any]:
    return RECORD_HEAD[name]
