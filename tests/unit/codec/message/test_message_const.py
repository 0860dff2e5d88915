"""Names of properties."""

import pytest

from rocketbroker.codec.message import message_const
from rocketbroker.codec.message import message_const as flags
from rocketbroker.codec.message.message_const import deliver_timestamp, level_of, parse_delay_levels
from rocketbroker.common.errors import ConfigError
from tests.support import golden_store

#: Set by the programs that made the recorded stores.
OWN = {"color", "n", "i", "属性"}


def test_reserved_names_are_constants() -> None:
    names = {value for name, value in vars(message_const).items() if name.startswith("PROPERTY_")}
    assert names > message_const.STRING_HASH_SET
    assert {"KEYS", "TAGS", "UNIQ_KEY", "__CRC32#"} < message_const.STRING_HASH_SET


def test_every_name_a_broker_stored_is_known() -> None:
    names = {value for name, value in vars(message_const).items() if name.startswith("PROPERTY_")}
    stored = {
        key
        for name in golden_store.NAMES
        for message in golden_store.manifest(name)["messages"]
        for key in message["properties"]
    }
    assert stored - names == OWN
    assert len(stored & names) > 15


def test_transaction_bits_are_reported() -> None:
    assert flags.transaction_value(0x30D) == flags.TRANSACTION_ROLLBACK_TYPE


def test_compression_bits() -> None:
    assert flags.compression_type(0x301) == flags.COMPRESSION_ZLIB_TYPE
    assert flags.compression_type(0x8FF) == 0


def test_host_bits() -> None:
    v4, v6 = bytes(8), bytes(20)

    assert [flags.host_flags(*hosts) for hosts in ((v4, v4), (v6, v4), (v4, v6), (v6, v6))] == [0, 0x10, 0x20, 0x30]


def test_levels_count_from_one_in_the_units_of_java():
    assert parse_delay_levels("1s 5s 10m 2h 1d") == {1: 1000, 2: 5000, 3: 600_000, 4: 7_200_000, 5: 86_400_000}


@pytest.mark.parametrize("text", ["1s 5", "5x", "s", "-1s", "1.5s", "²s"])
def test_a_part_that_is_no_delay_is_named(text: str):
    with pytest.raises(ConfigError, match=f"messageDelayLevel: '{text.rsplit(maxsplit=1)[-1]}' is not a delay"):
        parse_delay_levels(text)


def test_a_message_is_due_its_level_after_it_was_stored():
    levels = parse_delay_levels("1s 5s")

    assert deliver_timestamp(levels, 2, 100) == 5100
    assert deliver_timestamp(levels, 99, 100) == 1100


@pytest.mark.parametrize(("raw", "level"), [(b"3", 3), (b"", 0), (b"x", 0), (b"-1", 0), (b"9" * 11, 0)])
def test_a_level_that_is_not_a_number_is_0(raw: bytes, level: int):
    assert level_of(raw) == level


@pytest.mark.parametrize(
    ("text", "priority"),
    [
        ("0", 0),
        ("7", 7),
        ("+7", 7),
        ("2147483647", 2147483647),
        ("2147483648", None),
        ("-1", None),
        ("x", None),
        (None, None),
    ],
)
def test_a_priority_is_an_int_of_java(text: str | None, priority: int | None):
    assert flags.priority_of(text) == priority


def test_when_a_damaged_message_is_due_is_a_long_as_in_java():
    assert deliver_timestamp({2: 5000}, 2, (1 << 63) - 1) == -(1 << 63) + 4999
    assert deliver_timestamp({2: 5000}, 2, -(1 << 63)) == -(1 << 63) + 5000
