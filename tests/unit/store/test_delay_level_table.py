from pathlib import Path

import pytest

from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.common.errors import ConfigError
from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.delay_level_table import deliver_timestamp, parse_delay_levels, tags_code_of


def test_levels_count_from_one_in_the_units_of_java():
    assert parse_delay_levels("1s 5s 10m 2h 1d") == {1: 1000, 2: 5000, 3: 600_000, 4: 7_200_000, 5: 86_400_000}


@pytest.mark.parametrize("text", ["1s 5", "5x", "s", "-1s", "1.5s", "²s"])
def test_a_part_that_is_no_delay_is_named(text: str):
    with pytest.raises(ConfigError, match=f"messageDelayLevel: '{text.rsplit(maxsplit=1)[-1]}' is no delay"):
        parse_delay_levels(text)


def test_a_message_is_due_its_level_after_it_was_stored():
    levels = parse_delay_levels("1s 5s")

    assert deliver_timestamp(levels, 2, 100) == 5100
    assert deliver_timestamp(levels, 99, 100) == 1100


@pytest.mark.parametrize(("level", "due"), [(b"3", 10_100), (b"9", 1100), (b"x", 1100), (b"", 1100)])
def test_delayed_messages_are_queued_by_when_they_are_due(tmp_path: Path, level: bytes, due: int):
    queue = ConsumeQueue("SCHEDULE_TOPIC_XXXX", 2, tmp_path, 200)
    raw = b"DELAY\x01%s\x02TAGS\x01a\x02" % level

    assert tags_code_of(queue, {3: 10_000}, raw, b"a", 100) == due


def test_all_others_are_queued_by_their_tags(tmp_path: Path):
    queue = ConsumeQueue("Topic", 2, tmp_path, 200)

    assert tags_code_of(queue, {3: 10_000}, b"DELAY\x013\x02", b"a", 100) == tags_code("a")
    assert tags_code_of(queue, {3: 10_000}, b"", None, 100) == 0
