from pathlib import Path

import pytest

from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.longpolling.pull_request_hold_service import PullRequestHoldService
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_reset import OffsetReset, unconsumed_messages
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import StoreError
from rocketbroker.store.clean.clean_files_service import QueueRange
from tests.support.fakes import FakeClock


def test_each_group_is_reported_with_what_it_has_not_consumed():
    ranges = [QueueRange("T", 0, 10, 20), QueueRange("T", 1, 0, 5), QueueRange("Other", 0, 0, 7)]
    offsets = {
        "T@behind": {0: 15, 1: 5},
        "T@far": {0: 3, 1: 2},
        "T@done": {0: 20, 1: 9},
        "T@half": {1: 5},
        "%RETRY%behind@behind": {0: 0},
    }

    assert unconsumed_messages(ranges, offsets, {}) == [
        "group behind loses messages of topic T, queue 0: offsets 15 to 19",
        "group far loses messages of topic T, queue 0: offsets 10 to 19",
        "group far loses messages of topic T, queue 1: offsets 2 to 4",
        "group half loses messages of topic T, queue 0: offsets 10 to 19",
    ]


def test_delayed_messages_are_reported_by_level():
    ranges = [QueueRange("SCHEDULE_TOPIC_XXXX", 2, 10, 20), QueueRange("SCHEDULE_TOPIC_XXXX", 3, 0, 4)]

    assert unconsumed_messages(ranges, {}, {3: 12, 4: 4}) == [
        "delay level 3 loses undelivered messages: offsets 12 to 19"
    ]
    assert unconsumed_messages(ranges[1:], {}, {}) == ["delay level 4 loses undelivered messages: offsets 0 to 3"]


def test_timer_messages_are_reported():
    ranges = [QueueRange("rmq_sys_wheel_timer", 0, 10, 20)]

    assert unconsumed_messages(ranges, {}, {}, 12) == [
        "the timer loses undelivered messages: some of the offsets 12 to 19"
    ]
    assert unconsumed_messages(ranges, {}, {}, 20) == unconsumed_messages(ranges, {}, {}, None) == []


def test_an_empty_report_logs_nothing():
    assert unconsumed_messages([], {"T@g": {0: 0}}, {1: 0}) == []


PATH = Path("consumerOffset.json")


@pytest.mark.parametrize("refused", [False, True])
async def test_it_is_done_when_it_is_on_disk(refused):
    submitted: list[object] = []
    offsets = ConsumerOffsetManager(PATH, FakeClock(), submitted.append)

    async def drain():
        assert submitted == [offsets], "what is waited for was submitted"
        return {PATH} if refused else {Path("topics.json")}

    config = BrokerConfig()
    reset = OffsetReset(config, offsets, PullRequestHoldService(config), PopLongPollingService(config), drain)
    reset.assign("g", "T", {0: 7, 1: 8})
    assert offsets.offsets_of("g", "T") == {0: 7, 1: 8}
    if refused:
        with pytest.raises(StoreError, match=r"consumerOffset.json cannot be written"):
            await reset.store()
    else:
        await reset.store()
    assert not offsets.commit("g", "T", 0, 9)
