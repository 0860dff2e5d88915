"""Files of ``config/``: topics.json, consumerOffset.json and others (ConfigManager.encode(true)).

file := one fastjson object (codec/remoting/fastjson.py), pretty: TAB for each level, no space after the colon,
        no newline at the end
"""

from collections.abc import Mapping
from typing import Any

from rocketbroker.codec.message.buffers import ReadableBuffer
from rocketbroker.codec.remoting import fastjson
from rocketbroker.common.errors import CodecError

#: Far above the size that a broker writes (a topic takes some 250 bytes), far below one that would fill the memory.
MAX_CONFIG_SIZE = 256 << 20


def loads_config(buffer: ReadableBuffer) -> dict[Any, Any]:
    """Return the object in a config file; integer keys may be quoted or not, and stay as they are.

    :class:`CodecError` if it is not a JSON object, as after an interrupted write: its ``.bak`` holds the version
    before.
    """
    value = fastjson.loads(buffer, max_size=MAX_CONFIG_SIZE)
    if not isinstance(value, dict):
        raise CodecError(f"a config file must hold one JSON object, not {type(value).__name__}")
    return value


def dumps_config(value: Mapping[Any, Any]) -> bytes:
    """Return ``value`` as RocketMQ writes it to a config file, keys in the mapping's order."""
    return fastjson.dumps(value, indent="\t")
