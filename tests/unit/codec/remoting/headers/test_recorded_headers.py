"""Each typed header against each recorded request and answer that carries it."""

from collections import Counter

import pytest

from rocketbroker.codec.remoting.frame import HeaderFieldError
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.codec.remoting.remoting_command import from_ext_fields, to_ext_fields
from tests.support.golden_frames import GoldenFrame, answers_to, exchanges, requests_of
from tests.support.golden_headers import REQUESTS, RESPONSES

# Fields of all requests, of the C++ client's signature, and of answers to sends, which no header struct holds.
COMMON = {"bname", "ReqT", "AccessKey", "OnsChannel", "Signature", "TRACE_ON", "MSG_REGION"}
# Codes whose requests have fields of their own but are answered from the raw ones or not served.
RAW = {34, 354, 902, 903, 906, 908, 2004, 3001, 3002, 3003, 3004, 3006, 3007, 3008, 3009, 5001}


def typed(frame: GoldenFrame) -> dict[str, str]:
    route = Route(frame.code, lambda connection, command: b"", REQUESTS[frame.code])
    return to_ext_fields(route.decode(int(frame.binary), memoryview(frame.header())).header) or {}


@pytest.mark.parametrize("code", REQUESTS)
def test_requests_decode_and_encode_to_the_same_texts(code: int):
    requests = [frame for frame in requests_of(code) if not (code == 31 and not frame.command().header)]
    differing: Counter[tuple[str, str]] = Counter()

    assert requests
    for frame in requests:
        raw, texts = frame.command().header or {}, typed(frame)
        assert raw.keys() - texts.keys() <= COMMON
        differing.update((name, frame.sender) for name, text in raw.items() if texts.get(name, text) != text)
    # C++ writes booleans as 0 and 1.
    cpp = {("batch", "cpp-rocketmq-0.4.4"): 6, ("unitMode", "cpp-rocketmq-0.4.4"): 6}
    assert differing == (cpp if code == 10 else {})


@pytest.mark.parametrize("code", RESPONSES)
def test_answers_decode_and_encode_to_the_same_texts(code: int):
    answers = [answer for _, answer in answers_to(code) if answer and answer.code == 0]

    assert answers
    for answer in answers:
        raw = answer.command().header or {}
        texts = to_ext_fields(from_ext_fields(raw, RESPONSES[code])) or {}
        assert {name: text for name, text in raw.items() if name not in COMMON} == {
            name: text for name, text in texts.items() if name in raw
        }


def test_the_recorded_requests_without_their_fields_are_named():
    empty = [frame for frame in requests_of(31) if not frame.command().header]

    assert len(empty) == 3
    for frame in empty:
        with pytest.raises(HeaderFieldError, match="<topic> is missing"):
            typed(frame)


def test_each_recorded_request_with_fields_has_a_typed_header():
    with_fields = {
        exchange.request.code
        for exchange in exchanges()
        if exchange.request.code not in REQUESTS and exchange.request.command().header
    }
    unserved = {code for code in with_fields if 3442 <= code <= 3543 or code == 9999 or code >= 200050}

    assert with_fields - unserved == RAW
