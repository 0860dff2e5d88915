from pathlib import Path

import pytest

from rocketbroker.codec.message.tags_code import tags_code
from rocketbroker.store.message_appender import tags_code_of
from rocketbroker.store.queue.consume_queue import ConsumeQueue


@pytest.mark.parametrize(("level", "due"), [(b"3", 10_100), (b"9", 1100), (b"x", 1100), (b"", 1100)])
def test_delayed_messages_are_queued_by_when_they_are_due(tmp_path: Path, level: bytes, due: int):
    queue = ConsumeQueue("SCHEDULE_TOPIC_XXXX", 2, tmp_path, 200)
    raw = b"DELAY\x01%s\x02TAGS\x01a\x02" % level

    assert tags_code_of(queue, {3: 10_000}, raw, b"a", 100) == due


def test_all_others_are_queued_by_their_tags(tmp_path: Path):
    queue = ConsumeQueue("Topic", 2, tmp_path, 200)

    assert tags_code_of(queue, {3: 10_000}, b"DELAY\x013\x02", b"a", 100) == tags_code("a")
    assert tags_code_of(queue, {3: 10_000}, b"", None, 100) == 0
