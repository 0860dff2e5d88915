import pytest

from rocketbroker.common.errors import ConfigError
from rocketbroker.store.delay_level_table import deliver_timestamp, parse_delay_levels


def test_levels_count_from_one_in_the_units_of_java():
    assert parse_delay_levels("1s 5s 10m 2h 1d") == {1: 1000, 2: 5000, 3: 600_000, 4: 7_200_000, 5: 86_400_000}


@pytest.mark.parametrize("text", ["1s 5", "5x", "s", "-1s", "1.5s", "²s"])
def test_a_part_that_is_no_delay_is_named(text: str):
    with pytest.raises(ConfigError, match=f"messageDelayLevel: '{text.split()[-1]}' is no delay"):
        parse_delay_levels(text)


def test_a_message_is_due_its_level_after_it_was_stored():
    levels = parse_delay_levels("1s 5s")

    assert deliver_timestamp(levels, 2, 100) == 5100
    assert deliver_timestamp(levels, 99, 100) == 1100
