"""Texts of failed assertions name what is missing and what is too much."""

from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.testing.stored_state import lag_difference, message_difference, offset_difference, total_lag

QUEUE = MessageQueue("T", "broker-a", 0)
OTHER = MessageQueue("T", "broker-b", 0)


def test_equal_messages_have_no_difference():
    assert message_difference("messages", [], []) == ""


def test_a_long_body_is_shown_by_its_beginning_and_length():
    text = message_difference("messages of topic T", [b"x" * 5000], [])
    assert text == f"messages of topic T: 1 expected (-), 0 found (+)\n- {b'x' * 100!r}... (5,000 bytes)"


def test_a_group_without_an_offset_lags_by_all_messages():
    assert total_lag({QUEUE: (10, 15), OTHER: (0, 2)}, {OTHER: 1}) == 6
    assert lag_difference("G", 6, {QUEUE: (10, 15), OTHER: (0, 2)}, {OTHER: 1}) == ""


def test_a_lag_is_listed_by_queue():
    assert lag_difference("G", 0, {OTHER: (0, 2), QUEUE: (10, 15)}, {OTHER: 1}).splitlines() == [
        "lag of group G: 0 expected, 6 found",
        "  T broker-a queue 0: committed nothing, messages 10 to 15",
        "  T broker-b queue 0: committed 1, messages 0 to 2",
    ]


def test_offsets_are_compared_by_queue():
    assert offset_difference("G", "T", {0: 4}, {QUEUE: 4}) == ""
    assert offset_difference("G", "T", {0: 4, 1: 2}, {QUEUE: 5}).splitlines() == [
        "offsets of group G in T:",
        "  queue 0: 4 expected, 5 found",
        "  queue 1: 2 expected, none found",
    ]
