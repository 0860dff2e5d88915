import pytest

from rocketbroker.codec.storefile.checkpoint_layout import TimerCheckpoint, decode_timer_checkpoint
from rocketbroker.processor.admin.get_timer_check_point import GetTimerCheckPointProcessor
from tests.support.processor_calls import call, recorded
from tests.support.timers import Timer


@pytest.fixture
def timer(store, parts):
    return Timer(store, parts.clock).service


def test_recorded_answers_have_the_same_fields():
    found = [decode_timer_checkpoint(theirs.body) for _, theirs in recorded(60)]

    assert found
    assert all(checkpoint.last_read_time_ms > 0 for checkpoint in found)


def test_only_what_is_delivered_before_both(timer):
    timer.progress.begin([(1_000, 9), (5_000, 4)], 9, 1_000, 10_000)

    answer = call(GetTimerCheckPointProcessor(timer).process)

    assert decode_timer_checkpoint(answer.body) == TimerCheckpoint(1_000, 0, 9, 9)


def test_a_timer_without_messages(timer):
    assert call(GetTimerCheckPointProcessor(timer).process).body == bytes(56)
