"""Signatures of requests, compared with the standard library's HMAC and with Apache's own example."""

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.request_signature import V4_9_3, SigningKey, signed_content

V5 = V4_9_3 + 1


def test_it_is_the_signature_of_apaches_test():
    """The text and its signature are those of Apache's AclSignerTest."""
    assert SigningKey("12345678").signature({"AccessKey": "RocketMQ"}, V5, b"") == "IUc8rrO/0gDch8CjObLQsW2rsiA="


@given(secret=st.text(max_size=130), content=st.binary(max_size=200), body=st.binary(max_size=200))
def test_a_digest_is_that_of_hmac(secret: str, content: bytes, body: bytes):
    expected = hmac.digest(secret.encode("utf-8", "replace"), content + body, "sha1")
    assert SigningKey(secret).digest(content, memoryview(body)) == expected


def test_values_are_joined_by_the_order_of_their_names():
    fields = {"topic": "T", "Signature": "x", "AccessKey": "ak", "queueId": "1"}
    assert signed_content(fields, V5) == b"ak1T"


def test_old_clients_leave_one_field_out():
    fields = {"AccessKey": "ak", "_UNIQUE_KEY_QUERY": "true"}
    assert signed_content(fields, V4_9_3) == b"ak"
    assert signed_content(fields, V5) == b"aktrue"


def test_half_a_surrogate_pair_is_a_question_mark_as_in_java():
    assert signed_content({"topic": "a\ud800"}, V5) == b"a?"


@pytest.mark.parametrize(
    "wrong", ["", "x", "ä", "\ud800", "IUc8rrO/0gDch8CjObLQsW2rsiA", "iUc8rrO/0gDch8CjObLQsW2rsiA="]
)
def test_another_signature_does_not_verify(wrong: str):
    fields = {"AccessKey": "RocketMQ", "Signature": wrong}
    assert not SigningKey("12345678").verifies(wrong, fields, V5, b"")


@given(
    fields=st.dictionaries(st.text(max_size=5), st.text(max_size=8), max_size=6),
    body=st.binary(max_size=20),
    other=st.binary(min_size=1, max_size=20),
)
def test_a_request_verifies_by_its_key_and_body_alone(fields: dict[str, str], body: bytes, other: bytes):
    key = SigningKey("secret")
    signature = key.signature(fields, V5, body)
    assert len(base64.b64decode(signature)) == 20
    assert key.verifies(signature, {**fields, "Signature": signature}, V5, body)
    assert not key.verifies(signature, fields, V5, body + other)
    assert not SigningKey("other").verifies(signature, fields, V5, body)
