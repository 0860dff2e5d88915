import pytest

from rocketbroker.codec.remoting.frame import (
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    HeaderFieldError,
    encode_json_header,
    encode_rocketmq_header,
)
from rocketbroker.codec.remoting.handler import Audience, MethodTable, Route
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import request, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.errors import BrokerResponseError
from tests.support.fakes import FakeConnection

ENCODERS = {SERIALIZE_JSON: encode_json_header, SERIALIZE_ROCKETMQ: encode_rocketmq_header}


def process(connection, command):
    return None


async def process_later(connection, command):
    return None


@pytest.mark.parametrize("serialize_type", ENCODERS)
class TestRoute:
    def test_a_header_is_typed_in_either_encoding(self, serialize_type: int):
        header = ENCODERS[serialize_type](request(31, GetMinOffsetRequestHeader("T", 3)))

        command = Route(31, process, GetMinOffsetRequestHeader).decode(serialize_type, memoryview(header))

        assert command.header == GetMinOffsetRequestHeader("T", 3)

    def test_without_a_type_the_fields_stay_texts(self, serialize_type: int):
        header = ENCODERS[serialize_type](request(31, GetMinOffsetRequestHeader("T", 3)))

        command = Route(31, process).decode(serialize_type, memoryview(header))

        assert command.header == {"topic": "T", "queueId": "3"}

    def test_a_missing_field_is_named_in_either_encoding(self, serialize_type: int):
        asked = request(31, {"topic": "T"})
        asked.opaque = 5
        with pytest.raises(HeaderFieldError, match="<queueId> is missing") as caught:
            Route(31, process, GetMinOffsetRequestHeader).decode(
                serialize_type, memoryview(ENCODERS[serialize_type](asked))
            )

        assert caught.value.command.opaque == 5


def test_coroutine_functions_run_later():
    assert not Route(1, process).runs_later
    assert Route(1, process_later).runs_later


class TestMethodTable:
    def test_a_code_is_a_plain_number_that_leads_to_its_route(self):
        table = MethodTable()
        table.add(RequestCode.GET_MIN_OFFSET, process, GetMinOffsetRequestHeader)

        (route,) = table.routes.values()
        assert table.routes[31] is route
        assert (route.code, route.process, route.header_type) == (31, process, GetMinOffsetRequestHeader)
        assert type(route.code) is int

    def test_a_code_cannot_be_served_twice(self):
        table = MethodTable()
        table.add(31, process)

        with pytest.raises(ValueError, match="request code 31 has two routes"):
            table.add(RequestCode.GET_MIN_OFFSET, process_later)
        assert table.routes[31].process is process

    def test_a_code_is_for_administration_unless_it_says_otherwise(self):
        table = MethodTable()
        table.add(31, process)
        table.add(32, process, None, Audience.CLIENT)

        assert [table.routes[code].audience for code in (31, 32)] == [Audience.ADMINISTRATION, Audience.CLIENT]


class TestGuarded:
    @staticmethod
    def guarded(handler, guard, header_type=GetMinOffsetRequestHeader) -> Route:
        return Route(31, handler, header_type, Audience.CLIENT).guarded(guard)

    def test_the_guard_sees_raw_fields_and_the_handler_the_typed_header(self):
        seen = []
        route = self.guarded(
            lambda _connection, command: seen.append(command.header),
            lambda _connection, command: seen.append(dict(command.header)),
        )
        header = encode_json_header(request(31, {"topic": "T", "queueId": "3", "Signature": "abc"}))

        route.process(FakeConnection(), route.decode(SERIALIZE_JSON, memoryview(header)))

        assert seen == [{"topic": "T", "queueId": "3", "Signature": "abc"}, GetMinOffsetRequestHeader("T", 3)]
        assert (route.code, route.audience) == (31, Audience.CLIENT)

    def test_a_handler_without_a_type_gets_the_raw_fields(self):
        seen = []
        route = self.guarded(lambda _connection, command: seen.append(command.header), lambda *_: None, None)

        route.process(
            FakeConnection(), route.decode(SERIALIZE_JSON, memoryview(encode_json_header(request(31, {"a": "b"}))))
        )

        assert seen == [{"a": "b"}]

    def test_a_refusal_keeps_the_handler_from_being_called(self):
        def refuse(_connection, _command):
            raise BrokerResponseError(16, "no")

        route = self.guarded(lambda *_: pytest.fail("called"), refuse)

        with pytest.raises(BrokerResponseError, match="no"):
            route.process(FakeConnection(), request(31, {}))

    def test_a_bad_field_is_answered_as_without_a_guard(self):
        route = self.guarded(process, lambda *_: None)

        with pytest.raises(BrokerResponseError, match="<queueId> is missing") as caught:
            route.process(FakeConnection(), request(31, {"topic": "T"}))
        assert caught.value.code == 1

    def test_a_coroutine_function_still_runs_later(self):
        assert self.guarded(process_later, lambda *_: None).runs_later
        assert not self.guarded(process, lambda *_: None).runs_later

    def test_a_handler_that_asks_is_still_told_who_asks(self):
        route = Route(31, lambda _connection, _command, user: user, asks=True).guarded(lambda *_: None)

        assert route.asks
        assert route.process(FakeConnection(), request(31, {}), b"the user") == b"the user"


def queue_id_in(text: str, *, serialize_type: int, is_number: bool = False) -> int:
    """Queue id of a request that has this text for it."""
    route = Route(31, lambda _connection, _command: response(), GetMinOffsetRequestHeader)
    command = request(31, {"topic": "T", "queueId": text})
    if serialize_type:
        header = encode_rocketmq_header(command)
    else:
        header = encode_json_header(command)
        header = header.replace(f'"{text}"'.encode(), text.encode()) if is_number else header
    found: int = route.decode(serialize_type, memoryview(header)).header.queue_id
    return found


@pytest.mark.parametrize("text", ["1", "1.0", "1e0", "10e-1"])
def test_a_number_in_another_notation_is_the_integer_that_it_equals(text: str):
    """Clients that compute with floating point send 1.0; the queue is 1 everywhere from then on."""
    for value in (
        queue_id_in(text, serialize_type=0),
        queue_id_in(text, serialize_type=1),
        queue_id_in(text, serialize_type=0, is_number=True),
    ):
        assert (value, type(value)) == (1, int)


@pytest.mark.parametrize(
    "text", ["1.5", "", " 1", "+1", "0x1", "1_0", "01", "true", "NaN", "1e400", "2147483648", "1,0"]
)
@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_text_that_is_no_integer_is_rejected_by_the_name_of_its_field(text: str, serialize_type: int):
    with pytest.raises(HeaderFieldError, match="the custom field <queueId> has the value"):
        queue_id_in(text, serialize_type=serialize_type)
