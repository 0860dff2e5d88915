"""Bits of sysFlag."""

from rocketbroker.codec.message import message_sys_flag as flags


def test_transaction_bits_are_reported() -> None:
    assert flags.transaction_value(0x30D) == flags.TRANSACTION_ROLLBACK_TYPE


def test_compression_bits() -> None:
    assert flags.compression_type(0x301) == flags.COMPRESSION_ZLIB_TYPE
    assert flags.compression_type(0x8FF) == 0


def test_host_bits() -> None:
    v4, v6 = bytes(8), bytes(20)

    assert [flags.host_flags(*hosts) for hosts in ((v4, v4), (v6, v4), (v4, v6), (v6, v6))] == [0, 0x10, 0x20, 0x30]
