import pytest

from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.put_answers import RESPONSE_CODES, answer_when_acknowledged, put_refusal
from rocketbroker.store.commitlog.put_message import (
    ACKNOWLEDGED,
    Acknowledgement,
    Acknowledgements,
    OnAcknowledged,
    PutMessageResult,
    PutMessageStatus,
)

REFUSED = [status for status in PutMessageStatus if status is not PutMessageStatus.PUT_OK]


def test_each_status_has_a_code():
    assert set(RESPONSE_CODES) == set(REFUSED)


@pytest.mark.parametrize("status", REFUSED, ids=lambda status: status.name)
def test_the_remark_tells_causes_apart_that_share_a_code(status: PutMessageStatus):
    error = put_refusal(PutMessageResult(status, reason="95 % of the disk are in use"))

    assert error.code == RESPONSE_CODES[status]
    assert error.remark == f"[{status.name}] 95 % of the disk are in use"


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (PutMessageStatus.DISK_FULL, 14),
        (PutMessageStatus.MESSAGE_ILLEGAL, 13),
        (PutMessageStatus.CREATE_MAPPED_FILE_FAILED, 1),
        (PutMessageStatus.OS_PAGE_CACHE_BUSY, 2),
        (PutMessageStatus.IN_SYNC_REPLICAS_NOT_ENOUGH, 1),
    ],
)
def test_the_codes_are_those_of_rocketmq(status: PutMessageStatus, code: int):
    assert put_refusal(PutMessageResult(status)).code == code


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
