"""Selectors of messages, pulls, and their results with damage in them."""

import pytest

from rocketbroker.client.core.errors import InvalidMessageError
from rocketbroker.client.core.pull_result import MessageSelector, PullResult, pull_result, selector_of
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.remoting.headers.message import PullMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import response
from tests.support.consumer_parts import HOST
from tests.support.scripted_server import header_of


@pytest.mark.parametrize(("expression", "tags"), [("*", set()), ("", set()), ("a", {"a"}), (" a || b||", {"a", "b"})])
def test_an_expression_names_tags(expression: str, tags: set[str]):
    assert selector_of(expression).tags == tags


@pytest.mark.parametrize("text", ["a > 5", "a=1", "a <> 'x'", "a IS NULL", "a in ('x')", "price between 1 and 2"])
def test_sql_as_a_plain_expression_is_rejected_with_the_right_call(text: str):
    with pytest.raises(InvalidMessageError) as caught:
        selector_of(text)

    assert f"MessageSelector.by_sql({text!r})" in str(caught.value)
    assert selector_of(MessageSelector.by_sql(text)).tags == frozenset()
    assert selector_of(MessageSelector.by_tag(text)).tags == {text}


@pytest.mark.parametrize("text", ["TagA", "order-paid || order_shipped", "brand in", "android||ios", "a.b:c"])
def test_tags_are_not_taken_for_sql(text: str):
    assert selector_of(text).expression_type == "TAG"


BODY = b"a body that can be damaged"


def record(offset: int) -> bytes:
    return bytes(encode_record(0, 0, offset, offset * 100, 0, 1, HOST, 2, HOST, 0, 0, BODY, b"T", b""))


def result_of(body: bytes, *, offset: int, next_offset: int) -> PullResult:
    header = header_of(PullMessageResponseHeader(0, next_offset, 0, 100))
    answer = response(header=header, body=body)
    answer.header = header
    return pull_result(answer, frozenset(), offset)


def damaged(offset: int) -> bytes:
    return record(offset).replace(BODY, b"B" + BODY[1:])


def test_sound_messages_have_no_damage():
    result = result_of(record(5) + record(6), offset=5, next_offset=7)
    assert ([each.queue_offset for each in result.messages], result.next_begin_offset, result.damage) == ([5, 6], 7, "")


@pytest.mark.parametrize("at", [5, 6, 7])
def test_the_messages_before_a_damaged_one_are_returned(at: int):
    body = b"".join(damaged(offset) if offset == at else record(offset) for offset in (5, 6, 7))
    result = result_of(body, offset=5, next_offset=8)
    assert [each.queue_offset for each in result.messages] == list(range(5, at))
    assert result.next_begin_offset == at
    assert "bodyCRC is" in result.damage


def test_a_damaged_message_behind_filtered_ones_is_found_by_its_own_offset():
    assert result_of(damaged(9), offset=5, next_offset=10).next_begin_offset == 9


@pytest.mark.parametrize("body", [record(5) + record(6)[:30], record(5) + bytes(60), record(5) + b"x" * 200])
def test_a_record_without_a_credible_offset_comes_after_the_last_sound_one(body: bytes):
    result = result_of(body, offset=5, next_offset=8)
    assert ([each.queue_offset for each in result.messages], result.next_begin_offset) == ([5], 6)
    assert result.damage
