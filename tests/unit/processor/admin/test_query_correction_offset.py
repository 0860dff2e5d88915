from typing import cast

import pytest

from rocketbroker.codec.remoting.headers.message import QueryCorrectionOffsetHeader as Header
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.query_correction_offset import QueryCorrectionOffsetProcessor
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from tests.support.processor_calls import call_async, recorded, refusal_async

MAX = 2**63 - 1


class Queues:
    """Queue 2 begins at 50."""

    def min_offset_in_queue(self, _topic, queue_id):
        return 50 if queue_id == 2 else 0

    def max_offset_in_queue(self, _topic, _queue_id):
        return 100


@pytest.fixture
def processor(parts):
    for group, offsets in {"slow": {0: 10, 1: 20, 2: 40}, "fast": {0: 90, 1: 15, 2: 60}, "far": {0: 5}}.items():
        for queue_id, offset in offsets.items():
            parts.offsets.commit(group, "T", queue_id, offset)
    return QueryCorrectionOffsetProcessor(parts.offsets, cast("ConsumeQueueStore", Queues()))


async def ask(processor, *fields):
    answer = await call_async(processor.process, Header(*fields))
    assert answer.code == 0
    return answer.body["correctionOffsets"]


@pytest.mark.parametrize(
    ("compare", "filtered", "expected"),
    [
        ("other", None, {0: 5, 1: 15, 2: 60}),
        ("other", "far", {0: 10, 1: 15, 2: 60}),
        ("other", "far, slow", {0: 90, 1: 15, 2: 60}),
        ("far", "far", {0: MAX, 1: 15, 2: 60}),
        ("slow", "far,slow", {0: MAX, 1: 15, 2: MAX}),
    ],
)
async def test_the_least_offset_of_the_others(parts, processor, compare, filtered, expected):
    before = {key: dict(queues) for key, queues in parts.offsets.table.items()}
    assert await ask(processor, compare, "T", filtered) == expected
    assert parts.offsets.table == before, "asking changes nothing"


async def test_nothing_is_known_of_a_topic(processor):
    assert await ask(processor, "slow", "U") == {}


@pytest.mark.parametrize("wrong", [Header("../up", "T"), Header("g", "a/b")])
async def test_bad_names(processor, wrong):
    assert (await refusal_async(processor.process, wrong))[0] == ResponseCode.INVALID_PARAMETER


async def test_recorded_questions(parts):
    processor = QueryCorrectionOffsetProcessor(parts.offsets, cast("ConsumeQueueStore", Queues()))
    for group in ("CG_Live", "CG_Push"):
        for queue_id in range(4):
            parts.offsets.commit(group, "GoldenTopic", queue_id, 50 * (queue_id == 2))
    seen = 0
    for command, theirs in recorded(308, Header):
        ours = await call_async(processor.process, command.header)
        expected = {**theirs.body["correctionOffsets"], 2: 50}
        assert ours == theirs._replace(body={"correctionOffsets": expected})
        seen += 1
    assert seen == 3
