"""numpy views of the fixed layouts. Separate because importing numpy takes longer than a broker may take to start.

RECORD_HEAD        the 88 bytes before the body of a record whose two hosts are IPv4 (message_decoder.RECORD_HEAD)
CONSUME_QUEUE_ENTRY, BATCH_CONSUME_QUEUE_ENTRY    consume_queue_layout
INDEX_SLOT, INDEX_ENTRY                           index_file_layout
TIMER_SLOT_ENTRY                                  timer_slot_layout
"""

from typing import Final

import numpy as np

RECORD_HEAD: Final = np.dtype(
    [
        ("total_size", ">i4"),
        ("magic", ">u4"),
        ("body_crc", ">u4"),
        ("queue_id", ">i4"),
        ("flag", ">i4"),
        ("queue_offset", ">i8"),
        ("physical_offset", ">i8"),
        ("sys_flag", ">i4"),
        ("born_timestamp", ">i8"),
        ("born_ip", "u1", (4,)),
        ("born_port", ">i4"),
        ("store_timestamp", ">i8"),
        ("store_ip", "u1", (4,)),
        ("store_port", ">i4"),
        ("reconsume_times", ">i4"),
        ("prepared_transaction_offset", ">i8"),
        ("body_length", ">i4"),
    ]
)

CONSUME_QUEUE_ENTRY: Final = np.dtype([("commit_log_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])

BATCH_CONSUME_QUEUE_ENTRY: Final = np.dtype(
    [
        ("commit_log_offset", ">i8"),
        ("size", ">i4"),
        ("tags_code", ">i8"),
        ("store_time", ">i8"),
        ("msg_base_offset", ">i8"),
        ("batch_size", ">i2"),
        ("compacted_offset", ">i4"),
        ("reserved", ">i4"),
    ]
)

INDEX_SLOT: Final = np.dtype(">i4")
INDEX_ENTRY: Final = np.dtype([("key_hash", ">i4"), ("phy_offset", ">i8"), ("time_diff", ">i4"), ("previous", ">i4")])

TIMER_SLOT_ENTRY: Final = np.dtype([("slot_ms", ">i8"), ("queue_offset", ">i8"), ("magic", ">i4")])
