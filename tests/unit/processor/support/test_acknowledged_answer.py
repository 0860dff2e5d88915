import pytest

from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.acknowledged_answer import answer_when_acknowledged
from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    Acknowledgements,
    OnAcknowledged,
    PutMessageResult,
    PutMessageStatus,
)

PUT = PutMessageResult(PutMessageStatus.PUT_OK)


def ending_with(outcome: Acknowledgement) -> Acknowledgements:
    def wait(result: PutMessageResult, tell: OnAcknowledged) -> None:
        assert result is PUT
        tell(outcome)

    return Acknowledgements(wait)


async def test_an_acknowledged_message_has_the_answer_as_it_is():
    answer = response(header={"msgId": "M"})
    assert await answer_when_acknowledged(ending_with(ACKNOWLEDGED), PUT, answer) is answer


@pytest.mark.parametrize("header", [None, {"msgId": "M"}])
async def test_the_answer_to_a_message_that_is_not_on_disk_keeps_its_fields(header):
    refused = ending_with(Acknowledgement(PutMessageStatus.FLUSH_DISK_TIMEOUT, "the disk refused"))
    answer = await answer_when_acknowledged(refused, PUT, response(header=header))
    assert (answer.code, answer.remark) == (ResponseCode.FLUSH_DISK_TIMEOUT, "the disk refused")
    assert answer.header == header


async def test_a_topic_that_was_not_created_gives_no_fields():
    refused = ending_with(Acknowledgement(PutMessageStatus.TOPIC_NOT_CREATED, "the disk refused"))
    answer = await answer_when_acknowledged(refused, PUT, response(header={"msgId": "M"}))
    assert (answer.code, answer.remark) == (ResponseCode.SERVICE_NOT_AVAILABLE, "the disk refused")
    assert answer.header is None
