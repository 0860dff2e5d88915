"""Handle by which a producer cancels a timer message (org.apache.rocketmq.common.producer.RecallMessageHandle).

    handle := base64url of "v1" topic brokerName deliverMs uniqueKey, joined by blanks; padded

``deliverMs`` is one more than TIMER_OUT_MS, so that the cancel, due at that time, gets into the same slot.
"""

from base64 import urlsafe_b64encode
from binascii import Error, a2b_base64
from typing import Final, NamedTuple

from rocketbroker.common.errors import CodecError

VERSION_1: Final = "v1"
_PARTS: Final = 5
_SHOWN: Final = 64
_TO_STANDARD: Final = bytes.maketrans(b"-_", b"+/")


class RecallMessageHandle(NamedTuple):
    """Names one timer message. ``deliver_ms`` is the text as sent; its user checks that it is a number."""

    topic: str
    broker_name: str
    deliver_ms: str
    message_id: str

    def encode(self) -> str:
        """Return the handle in the form that producers receive."""
        return urlsafe_b64encode(" ".join((VERSION_1, *self)).encode()).decode()


def decode_recall_handle(handle: str) -> RecallMessageHandle:
    """Decode a handle; padding may be missing, as in Java.

    Raises:
        CodecError: The handle is invalid.
    """
    try:
        padded = handle.encode("ascii") + b"=" * (-len(handle) % 4)
        parts = a2b_base64(padded.translate(_TO_STANDARD), strict_mode=True).decode().split(" ")
    except (UnicodeError, Error) as error:
        raise CodecError(f"recall handle is invalid: {handle[:_SHOWN]!r} is not base64url of UTF-8") from error
    if len(parts) < _PARTS or parts[0] != VERSION_1:
        raise CodecError(
            f"recall handle is invalid: it holds {' '.join(parts)[:_SHOWN]!r} instead of v1, topic, broker, time and "
            "unique key"
        )
    return RecallMessageHandle(*parts[1:_PARTS])
