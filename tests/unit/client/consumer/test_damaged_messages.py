"""Retries and skips of damaged messages."""

import math

import pytest

from rocketbroker.client.consumer.damaged_messages import DamagedMessages
from rocketbroker.client.pull_result import PullResult, PullStatus
from tests.support.consumer_parts import QUEUE
from tests.support.fakes import FakeClock

DAMAGED = PullResult(PullStatus.FOUND, 7, 0, 100, [], damage="bodyCRC is wrong")


def test_a_message_that_stays_damaged_is_named_each_minute_and_then_skipped(caplog: pytest.LogCaptureFixture):
    clock = FakeClock()
    messages = DamagedMessages(QUEUE, 150.0, clock.monotonic)
    skips = []
    for _ in range(200):
        skips.append(messages.skips(DAMAGED))
        clock.advance(1)
    assert skips == [False] * 150 + [True] * 50
    assert [record.getMessage().count("pulled again") for record in caplog.records] == [1, 1, 1, 0]
    assert "the message at 7 is damaged and skipped: bodyCRC is wrong" in caplog.text


def test_a_sound_message_starts_the_time_anew():
    clock = FakeClock()
    messages = DamagedMessages(QUEUE, 10.0, clock.monotonic)
    assert not messages.skips(DAMAGED)
    clock.advance(20)
    messages.sound()
    assert not messages.skips(DAMAGED)


def test_a_message_may_be_waited_for_without_end():
    clock = FakeClock()
    messages = DamagedMessages(QUEUE, math.inf, clock.monotonic)
    for _ in range(5):
        assert not messages.skips(DAMAGED)
        clock.advance(1e6)
