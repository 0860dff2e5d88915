import pytest

from rocketbroker.processor.support.put_refusal import RESPONSE_CODES, put_refusal
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus

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
    ],
)
def test_the_codes_are_those_of_rocketmq(status: PutMessageStatus, code: int):
    assert put_refusal(PutMessageResult(status)).code == code
