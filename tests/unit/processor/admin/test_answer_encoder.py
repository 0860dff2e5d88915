import threading

import pytest

from rocketbroker.codec.remoting.bodies.remoting_serializable import TopicList
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError


class Body(TopicList):
    def encode(self):
        return threading.current_thread().name.encode()


@pytest.mark.parametrize(("entries", "on_loop"), [(500, True), (501, False)])
async def test_a_long_answer_is_encoded_off_the_loop(encoder, entries, on_loop):
    name = await encoder.encode(Body(), entries)
    assert (name == threading.current_thread().name.encode()) is on_loop


def test_an_answer_of_too_many_entries_is_rejected(encoder):
    encoder.check(65_536)
    with pytest.raises(BrokerResponseError) as error:
        encoder.check(65_537)
    assert error.value.code == ResponseCode.SYSTEM_ERROR
    assert error.value.remark.startswith(
        "maxEntriesPerAnswer: 65,537 entries exceed the limit of 65,536; ask for fewer"
    )
