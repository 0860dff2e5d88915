"""Admission by protected mode, and the refusals of the others."""

import logging
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketbroker.codec.remoting.frame import encode_json_header
from rocketbroker.codec.remoting.handler import Audience, Route
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common import event_log
from rocketbroker.common.config import TransportConfig
from rocketbroker.transport.access import LONG_PREFIX, SHORT_PREFIX, ProtectedMode, admit_all, route_tables
from tests.support.transports import connect, feed, frame

CLIENT, BROKER, ADMINISTRATION = Audience.CLIENT, Audience.BROKER, Audience.ADMINISTRATION
OWN = "192.0.2.1"


def admit(peer: str, own: str = OWN, **settings: str) -> Audience:
    return ProtectedMode(TransportConfig.model_validate(settings))(peer, own)


class TestProtectedMode:
    @pytest.mark.parametrize("peer", ["127.0.0.1", "127.9.8.7", "::1", "::ffff:127.0.0.1"])
    def test_loopback_may_administer(self, peer: str):
        assert admit(peer) is ADMINISTRATION

    @pytest.mark.parametrize(
        ("peer", "own"),
        [(OWN, OWN), ("2001:db8::1", "2001:db8::1"), ("::ffff:192.0.2.1", OWN), ("fe80::1%eth0", "fe80::1")],
    )
    def test_so_may_a_process_that_connects_to_an_address_of_its_own_machine(self, peer: str, own: str):
        assert admit(peer, own) is ADMINISTRATION

    @pytest.mark.parametrize(
        "peer", ["192.0.2.7", "10.0.0.1", "2001:db8::7", "::ffff:10.0.0.1", "fe80::7%eth0", "", "?", "0.0.0.0"]
    )
    def test_every_other_peer_is_a_client(self, peer: str):
        assert admit(peer) is CLIENT
        assert admit(peer, own="") is CLIENT

    @pytest.mark.parametrize("peer", ["192.0.2.7", "::ffff:192.0.2.7", "10.1.2.3", "2001:db8::7"])
    def test_white_lists_open_the_rest_by_address_and_by_network(self, peer: str):
        networks = "192.0.2.7;10.0.0.0/8, 2001:db8::/32"

        assert admit(peer, adminWhiteList=networks) is ADMINISTRATION
        assert admit(peer, brokerWhiteList=networks) is BROKER
        assert admit(peer, brokerWhiteList=networks, adminWhiteList=networks) is ADMINISTRATION
        assert admit("192.0.2.8", brokerWhiteList=networks, adminWhiteList=networks) is CLIENT

    def test_off_it_admits_everyone_as_rocketmq_does(self):
        assert admit("192.0.2.7", protectedMode="false") is ADMINISTRATION
        assert admit("?", protectedMode="false") is ADMINISTRATION


def answer(_connection, _command):
    return response()


ROUTES = {
    code: Route(code, answer, audience=audience)
    for code, audience in ((310, CLIENT), (103, BROKER), (17, ADMINISTRATION))
} | {3000: Route(3000, answer)}


@pytest.mark.parametrize(
    ("audience", "allowed"), [(CLIENT, {310}), (BROKER, {310, 103}), (ADMINISTRATION, {310, 103, 17, 3000})]
)
async def test_an_audience_reaches_its_own_routes_and_those_of_the_ones_before(audience: Audience, allowed: set[int]):
    connection, transport, _ = connect(ROUTES, admit=lambda _peer, _own: audience)
    assert connection.audience is audience

    for code in ROUTES:
        feed(connection, frame(code, opaque=code))

    codes = {answer.opaque: answer.code for answer in transport.answers}
    assert codes == {code: ResponseCode.SUCCESS if code in allowed else ResponseCode.NO_PERMISSION for code in ROUTES}


@pytest.mark.parametrize("serialize_type", [0, 1])
async def test_a_refusal_names_code_peer_and_setting_in_either_encoding(serialize_type: int):
    connection, transport, _ = connect(ROUTES, admit=lambda _peer, _own: CLIENT)

    feed(connection, frame(17, opaque=1, serialize_type=serialize_type))
    feed(connection, frame(103, opaque=2, serialize_type=serialize_type))

    assert [answer.remark for answer in transport.answers] == [
        (
            "protectedMode: request code 17 (UPDATE_AND_CREATE_TOPIC) is for administration, and 192.0.2.7:4000 is "
            "admitted as client; add its address to adminWhiteList, or set protectedMode=false"
        ),
        (
            "protectedMode: request code 103 (REGISTER_BROKER) is for broker, and 192.0.2.7:4000 is admitted as "
            "client; add its address to brokerWhiteList, or set protectedMode=false"
        ),
    ]


async def test_a_refused_request_is_rejected_before_its_header_is_looked_at():
    route = Route(RequestCode.GET_MIN_OFFSET, answer, GetMinOffsetRequestHeader)
    connection, transport, _ = connect({31: route}, admit=lambda _peer, _own: CLIENT)

    feed(connection, frame(31))

    assert transport.answers[0].code == ResponseCode.NO_PERMISSION


async def test_a_refusal_is_reported_without_the_port_of_the_peer():
    reported: list[tuple[str, int, str]] = []
    connection, _, _ = connect(
        ROUTES,
        admit=lambda _peer, _own: CLIENT,
        on_refused=lambda peer, code, reason: reported.append((peer.remote_address, code, reason)),
    )
    feed(connection, frame(17) + frame(310))

    reason = "protectedMode: for administration, the peer is admitted as client"
    assert reported == [("192.0.2.7:4000", 17, reason)]


async def test_a_refused_oneway_request_is_not_answered():
    connection, transport, _ = connect(ROUTES, admit=lambda _peer, _own: CLIENT)

    feed(connection, frame(17, oneway=True))

    assert transport.answers == []


async def test_the_question_is_asked_once_for_each_connection():
    asked = []

    def ask(peer: str, own: str) -> Audience:
        asked.append(peer)
        return CLIENT

    connection, _, _ = connect(ROUTES, admit=ask)
    feed(connection, frame(310) * 5)

    assert asked == ["192.0.2.7"]


async def test_open_connections_are_admitted_again_when_the_settings_change():
    config = TransportConfig()
    connection, transport, endpoint = connect(ROUTES, admit=ProtectedMode(config))
    feed(connection, frame(17))
    config.__dict__["admin_white_list"] = "192.0.2.0/24"
    feed(connection, frame(17))

    endpoint.readmit()
    feed(connection, frame(17))
    config.__dict__["admin_white_list"] = ""
    endpoint.readmit()
    feed(connection, frame(17))

    no, yes = ResponseCode.NO_PERMISSION, ResponseCode.SUCCESS
    assert [answer.code for answer in transport.answers] == [no, no, yes, no]


def test_what_is_allowed_keeps_its_very_route():
    tables = route_tables(ROUTES)

    assert tables[CLIENT].by_code[310] is tables[CLIENT].by_prefix[b'{"code":310,'] is ROUTES[310]
    assert tables[ADMINISTRATION].by_code == ROUTES


CODES = st.integers(0, 9_999_999)


@given(st.sets(CODES, min_size=1), CODES)
def test_the_first_bytes_of_a_header_find_the_route_of_its_code_or_none(served: set[int], other: int):
    table = route_tables({code: Route(code, lambda _connection, _command: b"") for code in served})[CLIENT]

    for code in served | {other}:
        header = encode_json_header(request(code))
        found = [table.by_prefix.get(header[:length]) for length in (SHORT_PREFIX, LONG_PREFIX)]
        assert {each.code for each in found if each is not None} <= {code} & served
        assert any(found) == (code in served and len(str(code)) in {2, 3, 6})


async def test_refusals_are_logged_rarely_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    now = [100.0]
    monkeypatch.setattr(event_log, "time", SimpleNamespace(monotonic=lambda: now[0]))
    connection, _, _ = connect(ROUTES, admit=lambda _peer, _own: CLIENT)
    with caplog.at_level(logging.WARNING):
        feed(connection, frame(17) * 100)
        now[0] += 10
        feed(connection, frame(17))

    first, second = (record.getMessage() for record in caplog.records)
    assert first.endswith("rejected since the last such line: 1")
    assert second.endswith("rejected since the last such line: 100")


def test_without_protection_everyone_is_an_administrator():
    assert admit_all("192.0.2.7", OWN) is ADMINISTRATION
