import pytest

from rocketbroker.codec.remoting.frame import SERIALIZE_JSON, SERIALIZE_ROCKETMQ
from rocketbroker.codec.remoting.handler import MethodTable, Route
from rocketbroker.codec.remoting.headers.offset import GetMinOffsetRequestHeader
from rocketbroker.codec.remoting.json_header import HeaderFieldError, encode_json_header
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.rocketmq_header import encode_rocketmq_header

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

        with pytest.raises(ValueError, match="request code 31 is routed twice"):
            table.add(RequestCode.GET_MIN_OFFSET, process_later)
        assert table.routes[31].process is process
