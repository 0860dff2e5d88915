"""Bits of a message's ``sysFlag`` (org.apache.rocketmq.common.sysflag.MessageSysFlag).

bit 0        body is compressed
bit 1        message has several tags
bits 2-3     transaction: 0 none, 1 prepared, 2 commit, 3 rollback
bit 4        born host is IPv6 (20 bytes instead of 8)
bit 5        store host is IPv6
bit 6        consumer must unwrap the body into inner messages
bit 7        body is an inner batch
bits 8-10    compression: 0 zlib of clients before 5.0, 1 LZ4 frame, 2 Zstandard, 3 zlib
"""

from typing import Final

COMPRESSED_FLAG: Final = 0x1
MULTI_TAGS_FLAG: Final = 0x2
TRANSACTION_NOT_TYPE: Final = 0x0
TRANSACTION_PREPARED_TYPE: Final = 0x4
TRANSACTION_COMMIT_TYPE: Final = 0x8
TRANSACTION_ROLLBACK_TYPE: Final = 0xC
BORNHOST_V6_FLAG: Final = 0x10
STOREHOSTADDRESS_V6_FLAG: Final = 0x20
NEED_UNWRAP_FLAG: Final = 0x40
INNER_BATCH_FLAG: Final = 0x80
COMPRESSION_LZ4_TYPE: Final = 0x100
COMPRESSION_ZSTD_TYPE: Final = 0x200
COMPRESSION_ZLIB_TYPE: Final = 0x300
COMPRESSION_TYPE_COMPARATOR: Final = 0x700
#: Bits that only the broker sets, the second for the record into which it turns a batch.
BROKER_FLAGS: Final = TRANSACTION_ROLLBACK_TYPE | INNER_BATCH_FLAG

#: Length in bytes of a host field: address and int32 port.
HOST_V4_LENGTH: Final = 8
HOST_V6_LENGTH: Final = 20


def transaction_value(sys_flag: int) -> int:
    """Return the transaction bits of ``sys_flag``: one of the ``TRANSACTION_*_TYPE`` values."""
    return sys_flag & TRANSACTION_ROLLBACK_TYPE


def compression_type(sys_flag: int) -> int:
    """Return the compression bits of ``sys_flag``: 0 or one of the ``COMPRESSION_*_TYPE`` values."""
    return sys_flag & COMPRESSION_TYPE_COMPARATOR


def host_flags(born_host: bytes, store_host: bytes) -> int:
    """Return the IPv6 bits for hosts of these lengths."""
    born = BORNHOST_V6_FLAG if len(born_host) == HOST_V6_LENGTH else 0
    return born | (STOREHOSTADDRESS_V6_FLAG if len(store_host) == HOST_V6_LENGTH else 0)
