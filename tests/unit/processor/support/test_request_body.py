import pytest

from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.client import HeartbeatData, LockBatchRequestBody
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.request_body import read_body


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


@pytest.mark.parametrize("kind", [LockBatchRequestBody, HeartbeatData])
@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 200_000 + b"[]]",
        b'{"clientId":1,"consumerGroup":[' + b"[]," * 200_000 + b"[]]}",
        b'{"clientId":"c",1:[' + b"1," * 300_000 + b"1]}",
        b'{"clientId":"c","mqSet":{' + b"{}:1," * 100_000 + b"{}:1}}",
    ],
    ids=["lists", "wrong field", "unquoted key", "object keys"],
)
def test_a_body_that_only_python_could_read_is_rejected_when_it_is_large(body: bytes, kind, monkeypatch):
    monkeypatch.setattr(fastjson, "loads", lambda *_: pytest.fail("each value would be read in Python"))
    with pytest.raises(BrokerResponseError, match="may have 5,000 values") as error:
        read_body(memoryview(body), kind)
    assert error.value.code == ResponseCode.SYSTEM_ERROR


def test_a_large_body_in_plain_json_is_read():
    queue = b'{"topic":"T","brokerName":"b","queueId":1}'
    body = b'{"consumerGroup":"g","clientId":"c","mqSet":[' + (queue + b",") * 10_000 + queue + b"]}"
    assert len(read_body(memoryview(body), LockBatchRequestBody).mq_set) == 10_001
