"""Each body type against each recorded body of its kind."""

from collections import Counter

import msgspec
import pytest

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.remoting_serializable import RemotingSerializable
from rocketbroker.codec.remoting.bodies.route import TopicRouteData, takes_standard_json
from rocketbroker.common.errors import CodecError
from tests.support.golden_bodies import REQUESTS, RESPONSES, GoldenBody, answer_bodies, request_bodies
from tests.support.golden_frames import exchanges

# Senders that do not write what fastjson does: other orders, ordinals, defaults left out. "raw" bodies are hand-made.
NOT_CANONICAL = {
    34: {
        "cpp-rocketmq-0.4.4": 2,
        "go-client-2.1.2": 6,
        "node-ali-ons-3.12.0": 4,
        "raw-json": 1,
        "raw-bin": 1,
        "binserver-raw-bin": 1,
    },
    217: {"raw-json": 1, "raw-bin": 1, "binserver-raw-bin": 1},
}


def encoded(body: RemotingSerializable, golden: GoldenBody) -> bytes:
    if isinstance(body, TopicRouteData) and golden.exchange.response:
        command = golden.exchange.request.command()
        standard = (command.header or {}).get("acceptStandardJsonOnly") == "true"
        return body.encode_standard() if takes_standard_json(command.version, standard) else body.encode()
    return body.encode()


@pytest.mark.parametrize("code", REQUESTS)
def test_requests_encode_back_to_the_same_bytes(code: int):
    bodies = request_bodies(code)
    differing = Counter(
        golden.exchange.request.sender
        for golden in bodies
        if encoded(REQUESTS[code].decode(golden.data), golden) != golden.data
    )

    assert bodies
    assert differing == NOT_CANONICAL.get(code, {})


@pytest.mark.parametrize("code", RESPONSES)
def test_answers_encode_back_to_the_same_bytes(code: int):
    bodies = answer_bodies(code)

    assert bodies
    for golden in bodies:
        assert encoded(RESPONSES[code].decode(golden.data), golden) == golden.data


@pytest.mark.parametrize("code", NOT_CANONICAL)
def test_what_is_not_canonical_keeps_its_meaning(code: int):
    for golden in request_bodies(code):
        body = REQUESTS[code].decode(golden.data)
        assert REQUESTS[code].decode(body.encode()) == body


KINDS = sorted({*REQUESTS.values(), *RESPONSES.values()}, key=lambda kind: kind.__name__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_a_body_cut_short_is_rejected(kind: type[RemotingSerializable]):
    bodies = [
        golden.data.rstrip()
        for table, bodies_of in ((REQUESTS, request_bodies), (RESPONSES, answer_bodies))
        for code, type_of_code in table.items()
        if type_of_code is kind
        for golden in bodies_of(code)
    ]
    shortest = min(bodies, key=len)

    assert shortest
    # Each byte of what is short; a large table repeats itself.
    for end in range(0, len(shortest), 1 + len(shortest) // 800):
        with pytest.raises(CodecError):
            kind.decode(shortest[:end])


# JSON that needs no type: a client's own state (307, 309), features that are served from raw values or not at all.
PASSED_ON = {
    307,
    309,
    351,
    354,
    400,
    401,
    513,
    907,
    2003,
    3001,
    3002,
    3006,
    3007,
    3463,
    3543,
    200071,
    200074,
    200151,
}


def test_each_recorded_json_body_has_a_type_or_is_passed_on():
    untyped = set()
    for request, response in exchanges():
        if request.code not in REQUESTS and request.body().startswith(b"{"):
            untyped.add(request.code)
        if request.code not in RESPONSES and response and response.body().startswith(b"{"):
            untyped.add(request.code)

    assert untyped == PASSED_ON


@pytest.mark.parametrize("code", sorted(PASSED_ON - {2003}))
def test_what_is_passed_on_survives_without_a_type(code: int):
    bodies = [golden.data for golden in request_bodies(code) + answer_bodies(code) if golden.data.startswith(b"{")]

    assert bodies
    for data in bodies:
        assert fastjson.dumps(fastjson.loads(data)) == data


def test_two_bodies_share_no_default():
    table = RESPONSES[21]()
    other = RESPONSES[21]()

    assert table == other
    assert not any(
        getattr(table, name) is getattr(other, name)
        for name in table.__struct_fields__
        if isinstance(getattr(table, name), (dict, list, msgspec.Struct))
    )
