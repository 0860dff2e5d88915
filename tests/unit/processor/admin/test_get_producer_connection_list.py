import pytest

from rocketbroker.codec.remoting.headers.client import GetProducerConnectionListRequestHeader
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.admin.get_producer_connection_list import GetProducerConnectionListProcessor
from tests.support.processor_calls import call, recorded, refusal


def test_recorded_requests(parts, producer):
    processor = GetProducerConnectionListProcessor(parts.producers)
    (command, offline), (again, online) = recorded(204, GetProducerConnectionListRequestHeader)
    assert call(processor.process, command.header) == offline
    (client,) = online.body["connectionSet"]
    producer("PG_Live", client["clientId"], port=int(client["clientAddr"].rpartition(":")[2]))
    assert call(processor.process, again.header) == online


@pytest.mark.parametrize("group", ["../up", ""])
def test_bad_names_are_named(parts, group):
    processor = GetProducerConnectionListProcessor(parts.producers)
    code, remark = refusal(processor.process, GetProducerConnectionListRequestHeader(group))
    assert code == ResponseCode.INVALID_PARAMETER
    assert "The specified group" in remark
