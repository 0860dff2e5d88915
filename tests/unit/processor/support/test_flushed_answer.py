import pytest

from rocketbroker.codec.remoting.remoting_command import response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.processor.support.flushed_answer import answer_when_flushed
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus

PUT = PutMessageResult(PutMessageStatus.PUT_OK)


class Store:
    """Gives a reason why a message is not on disk."""

    waits_for_flush = True

    def __init__(self, why: str) -> None:
        self._why = why
        self.asked: list[PutMessageResult] = []

    async def wait_flushed(self, result: PutMessageResult) -> str:
        """The reason."""
        self.asked.append(result)
        return self._why


async def test_a_message_on_disk_has_the_answer_as_it_is():
    answer, store = response(header={"msgId": "M"}), Store("")
    assert await answer_when_flushed(store, PUT, answer) is answer
    assert store.asked == [PUT]


@pytest.mark.parametrize("header", [None, {"msgId": "M"}])
async def test_one_that_is_not_is_told_with_the_reason_and_what_is_known_of_it(header):
    answer = await answer_when_flushed(Store("the disk refused"), PUT, response(header=header))
    assert (answer.code, answer.remark) == (ResponseCode.FLUSH_DISK_TIMEOUT, "the disk refused")
    assert answer.header == header
