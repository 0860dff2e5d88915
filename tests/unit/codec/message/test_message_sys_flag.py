"""Bits of sysFlag."""

from rocketbroker.codec.message import message_sys_flag as flags


def test_transaction_bits_are_told() -> None:
    assert flags.transaction_value(0x30D) == flags.TRANSACTION_ROLLBACK_TYPE


def test_compression_bits() -> None:
    assert flags.compression_type(0x301) == flags.COMPRESSION_ZLIB_TYPE
    assert flags.compression_type(0x8FF) == 0


def test_host_bits_and_lengths() -> None:
    v4, v6 = bytes(8), bytes(20)
    for born, store in ((v4, v4), (v4, v6), (v6, v4), (v6, v6)):
        found = flags.host_flags(born, store)
        assert (flags.born_host_length(found), flags.store_host_length(found)) == (len(born), len(store))
