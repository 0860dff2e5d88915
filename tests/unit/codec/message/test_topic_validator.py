"""Names that are allowed and names that are not."""

import pytest

from rocketbroker.codec.message import topic_validator as tv
from tests.support import golden_store

RULE = "allowing only ^[%|a-zA-Z0-9_-]+$"


def test_every_golden_topic_is_valid() -> None:
    for name in golden_store.NAMES:
        for message in golden_store.manifest(name)["messages"]:
            assert tv.validate_topic(message["topic"]) == (True, "")


@pytest.mark.parametrize("name", ["T", "a-Z_0|%", "t" * 127, "%RETRY%" + "g" * 248, "%DLQ%" + "g" * 250])
def test_valid_topics(name: str) -> None:
    assert tv.validate_topic(name).valid


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified topic is blank."),
        (" \t", "The specified topic is blank."),
        ("../x", f"The specified topic: ../x, contains illegal characters, {RULE}"),
        ("a b", f"The specified topic: a b, contains illegal characters, {RULE}"),
        ("topic\n", f"The specified topic: topic\n, contains illegal characters, {RULE}"),
        ("tópico", f"The specified topic: tópico, contains illegal characters, {RULE}"),
        ("a\0", f"The specified topic: a\0, contains illegal characters, {RULE}"),
        ("t" * 128, f"The specified topic: {'t' * 128}, is longer than topic max length: 127"),
        (
            "%RETRY%" + "g" * 249,
            (
                f"The specified topic is DLQ or Retry topic: %RETRY%{'g' * 249}, "
                "and it's longer than topic max length: 255"
            ),
        ),
    ],
)
def test_invalid_topics_and_their_remarks(name: str, remark: str) -> None:
    assert tv.validate_topic(name) == (False, remark)


@pytest.mark.parametrize(
    ("name", "remark"),
    [
        ("", "The specified group is blank."),
        ("a/b", f"The specified group: a/b, contains illegal characters, {RULE}"),
        ("g" * 121, f"The specified group: {'g' * 121}, is longer than group max length: 120"),
    ],
)
def test_invalid_groups_and_their_remarks(name: str, remark: str) -> None:
    assert tv.validate_group(name) == (False, remark)


def test_the_longest_groups() -> None:
    assert tv.validate_group("g" * 120).valid
    assert tv.validate_group("g" * 255, tv.LEGACY_GROUP_MAX_LENGTH).valid
    assert not tv.validate_group("g" * 256, tv.LEGACY_GROUP_MAX_LENGTH).valid


def test_a_huge_name_does_not_come_back_whole() -> None:
    assert len(tv.validate_topic("/" * 1_000_000).remark) < 1000


def test_system_topics() -> None:
    assert tv.is_system_topic("SCHEDULE_TOPIC_XXXX")
    assert tv.is_system_topic("rmq_sys_wheel_timer")
    assert not tv.is_system_topic("StPlain")
    assert tv.is_not_allowed_send_topic("SCHEDULE_TOPIC_XXXX")
    assert not tv.is_not_allowed_send_topic("TBW102")
    assert tv.NOT_ALLOWED_SEND_TOPIC_SET < tv.SYSTEM_TOPIC_SET


def test_groups_are_found_by_their_retry_topics() -> None:
    topics = ["%RETRY%b", "T", "%RETRY%a", "%DLQ%c", "%RETRY%a+T", "%RETRY%" + "g" * 121, "%RETRY%"]
    assert tv.groups_with_retry_topics(topics) == ["b", "a"]
