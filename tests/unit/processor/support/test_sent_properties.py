import pytest

from rocketbroker.codec.message.message_properties import find_properties
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.sent_properties import KeyLimit


def properties(keys: str) -> bytes:
    return f"TAGS\1a\2KEYS\1{keys}\2".encode()


@pytest.mark.parametrize(
    "keys", ["", "one", "a b c", "a  b   c ", " " * 100 + "a", "a" * 1000, "a b " + "c" * 1000], ids=len
)
def test_keys_up_to_the_limit_are_accepted(keys: str):
    KeyLimit(3).check(properties(keys))
    KeyLimit(3).check_all([b"", properties(keys)])


def test_one_more_is_rejected_with_its_number_and_the_setting():
    with pytest.raises(BrokerResponseError) as refused:
        KeyLimit(3).check_all([properties("a b c"), properties("a b c d")])

    assert refused.value.code == ResponseCode.MESSAGE_ILLEGAL
    assert refused.value.remark.startswith("maxKeysPerMessage: 4 keys exceed the limit of 3;")


@pytest.mark.parametrize(("limit", "of_traces"), [(3, 2048), (5000, 5000)])
def test_a_message_of_traces_has_a_limit_of_its_own(limit: int, of_traces: int):
    traces = KeyLimit(limit).of_traces()
    traces.check(properties(" ".join(["k"] * of_traces)))

    with pytest.raises(BrokerResponseError, match=f"{of_traces + 1:,} keys exceed the limit of {of_traces:,};"):
        traces.check(properties(" ".join(["k"] * (of_traces + 1))))


@pytest.mark.parametrize(("keys", "fits"), [("", True), ("a b c", True), ("a b c d", False)])
def test_long_properties_with_short_keys_certainly_fit(keys: str, fits: bool):
    raws = [properties(keys) + b"x\1" + b"y" * 1000 + b"\2", properties("a")]

    assert KeyLimit(3).always_fits_all(raws, map(find_properties, raws)) is fits


def test_properties_that_cannot_hold_more_are_not_looked_at(monkeypatch):
    limit = KeyLimit(128)
    looked: list[bytes] = []
    monkeypatch.setattr(
        "rocketbroker.processor.support.sent_properties.get_property",
        lambda raw, _: looked.append(raw),  # gives None
    )

    limit.check(bytes(limit.always_fits))
    assert looked == []
    limit.check(bytes(limit.always_fits + 1))
    assert len(looked) == 1


def test_the_shortest_text_with_too_many_is_looked_at():
    limit = KeyLimit(128)
    with pytest.raises(BrokerResponseError, match="129 keys"):
        limit.check(b"KEYS\1" + b" ".join([b"k"] * 129) + b"\2")
