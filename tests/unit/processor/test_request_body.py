import pytest

from rocketbroker.codec.remoting.bodies.lock_batch import LockBatchRequestBody
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.request_body import read_body


def test_read_body():
    body = read_body(memoryview(b'{"consumerGroup":"g","clientId":"c","unknown":1}\n'), LockBatchRequestBody)
    assert (body.consumer_group, body.client_id, body.mq_set) == ("g", "c", [])


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"", "JSON"),
        (b"{", "JSON"),
        (b"\xff", "JSON"),
        (b"[]", "LockBatchRequestBody"),
        (b'{"clientId":"c"}', "consumerGroup"),
        (b'{"clientId":"c","consumerGroup":7}', "consumerGroup"),
        (b'{"clientId":"c","consumerGroup":"g","mqSet":[{"topic":"T","brokerName":"b","queueId":"x"}]}', "queueId"),
    ],
)
def test_wrong_body_is_named(body, named):
    with pytest.raises(BrokerResponseError, match=named) as error:
        read_body(memoryview(body), LockBatchRequestBody)
    assert error.value.code == ResponseCode.SYSTEM_ERROR
