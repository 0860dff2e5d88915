"""Selectors of messages: tags, SQL92, and telling them apart."""

import pytest

from rocketbroker.client.errors import InvalidMessageError
from rocketbroker.client.message_selector import MessageSelector, selector_of


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
