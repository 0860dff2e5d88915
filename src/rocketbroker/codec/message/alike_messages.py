"""Messages of batches that differ in body and unique id only and have no keys, as rows of a matrix.

Most batches of a producer are like that. For a hundred messages numpy is faster than a loop over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rocketbroker.codec.java_types import ReadableBuffer
from rocketbroker.codec.message.message_batch import INNER_BODY_POSITION, MIN_INNER_SIZE, SIZE_FLAG_LENGTH
from rocketbroker.codec.message.message_decoder import PROPERTIES_LENGTH
from rocketbroker.codec.message.message_properties import find_properties, unique_key_span

_PAIR_END: Final = b"\x02"
_NUL: Final = b"\0"


class AlikeMessages(NamedTuple):
    """Messages, at least one, that differ in body and unique id only and have no keys.

    Attributes:
        rows: bytes of each message as in a batch, shape (n, size).
        flag: flag of each message.
        body_length: bytes of each body.
        properties: raw properties of the first message.
        tags: tags of each message.
        unique_key: begin and end of the unique id in the properties.
        unique_keys: unique ids, joined.
    """

    rows: npt.NDArray[np.uint8]
    flag: int
    body_length: int
    properties: bytes
    tags: bytes | None
    unique_key: tuple[int, int]
    unique_keys: bytes

    def bodies(self) -> list[bytes]:
        """Return the body of each message."""
        count, size = self.rows.shape
        if not self.body_length:
            return [b""] * count
        column = np.ndarray((count,), f"V{self.body_length}", self.rows, INNER_BODY_POSITION, (size,))
        found: list[bytes] = column.tolist()
        return found


def alike_messages(batches: Sequence[ReadableBuffer]) -> AlikeMessages | None:
    """Return the messages in the bodies of batches.

    Returns ``None`` if they differ in more, if properties hold a NUL, or if lengths do not add up.
    """
    if len(batches[0]) < MIN_INNER_SIZE:
        return None
    size, flag, body_length = SIZE_FLAG_LENGTH.unpack_from(batches[0])
    body_end = INNER_BODY_POSITION + body_length
    start = body_end + PROPERTIES_LENGTH.size
    if not INNER_BODY_POSITION <= body_end < start <= size or any(not each or len(each) % size for each in batches):
        return None
    data = b"".join(batches)
    properties = data[start:size]
    unique_key = unique_key_span(properties)
    tags, _, keys, _ = find_properties(properties)
    if unique_key is None or keys or PROPERTIES_LENGTH.unpack_from(data, body_end)[0] != len(properties):
        return None
    rows = np.frombuffer(data, np.uint8).reshape(-1, size)
    begin, end = start + unique_key[0], start + unique_key[1]
    unique_keys = rows[:, begin:end].tobytes()
    # All but bodies and unique ids; numpy takes longer to compare than to copy.
    for part in (slice(INNER_BODY_POSITION), slice(body_end, begin), slice(end, size)):
        if rows[:, part].tobytes() != data[part] * len(rows):
            return None
    if _PAIR_END in unique_keys or _NUL in unique_keys or _NUL in properties:
        return None
    return AlikeMessages(rows, flag, body_length, properties, tags, unique_key, unique_keys)
