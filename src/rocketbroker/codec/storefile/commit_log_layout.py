"""Layout of a CommitLog file (org.apache.rocketmq.store.CommitLog).

    file   := record* (BLANK | zeros)
    record := codec/message/message_encoder.py
    BLANK  := int32 bytes left in the file, int32 magic, the rest undefined

A record never spans files: one that does not fit goes to the next file, after a BLANK in this one.
Unwritten space is zeros, so a totalSize of 0 is the end of what was written.
"""

from typing import Final

from rocketbroker.codec.message.message_encoder import BLANK_LENGTH

#: Bytes that stay free after the last record, so that a BLANK always fits.
END_FILE_MIN_BLANK_LENGTH: Final = BLANK_LENGTH


def fits(record_size: int, free: int) -> bool:
    """Return true if a record of ``record_size`` bytes fits into a file with ``free`` bytes left."""
    return record_size + END_FILE_MIN_BLANK_LENGTH <= free
