import pytest

from rocketbroker.codec.remoting.headers.admin import GetProducerConnectionListRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.get_producer_connection_list import GetProducerConnectionListProcessor
from tests.support.processor_calls import call_async, recorded, refusal_async


async def test_recorded_requests(parts, producer, encoder):
    processor = GetProducerConnectionListProcessor(parts.producers, encoder)
    (command, offline), (again, online) = recorded(204, GetProducerConnectionListRequestHeader)
    assert await call_async(processor.process, command.header) == offline
    (client,) = online.body["connectionSet"]
    producer("PG_Live", client["clientId"], port=int(client["clientAddr"].rpartition(":")[2]))
    assert await call_async(processor.process, again.header) == online


@pytest.mark.parametrize("group", ["../up", ""])
async def test_bad_names_are_named(parts, group, encoder):
    processor = GetProducerConnectionListProcessor(parts.producers, encoder)
    code, remark = await refusal_async(processor.process, GetProducerConnectionListRequestHeader(group))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark
