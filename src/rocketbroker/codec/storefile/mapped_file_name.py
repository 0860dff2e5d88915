"""Names of mapped files. Answers to ``UtilAll.offset2FileName``.

name := the file's first byte offset in its queue, as 20 decimal digits
"""

import re
from typing import Final

from rocketbroker.common.errors import CodecError

_NAME: Final = re.compile(r"[0-9]{20}", re.ASCII)
_MAX_OFFSET: Final = (1 << 63) - 1


def offset_to_file_name(offset: int) -> str:
    """Name of the file that begins at byte ``offset``."""
    if not 0 <= offset <= _MAX_OFFSET:
        raise CodecError(f"file offset {offset} is outside 0..{_MAX_OFFSET}")
    return f"{offset:020d}"


def file_name_to_offset(name: str) -> int:
    """First byte offset of the file called ``name``; :class:`CodecError` if it is no such name."""
    if _NAME.fullmatch(name) is None or (offset := int(name)) > _MAX_OFFSET:
        raise CodecError(f"{name!r} is no mapped file's name: 20 decimal digits up to {_MAX_OFFSET} are expected")
    return offset
