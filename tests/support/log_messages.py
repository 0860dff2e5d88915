"""Messages of a CommitLog's bytes."""

from rocketbroker.codec.message.message_decoder import BLANK_MAGIC_CODE, decode_record, peek
from rocketbroker.codec.message.message_ext import MessageExt


def messages_of(log: bytes, begin: int = 0) -> dict[int, MessageExt]:
    """Return the messages before unwritten space, by their offsets; the log begins at ``begin``."""
    found, at = {}, 0
    while at < len(log):
        size, magic = peek(log, at)
        if not size:
            break
        if magic != BLANK_MAGIC_CODE:
            found[begin + at] = decode_record(log[at : at + size])
        at += size
    return found
