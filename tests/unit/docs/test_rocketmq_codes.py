"""The page of RocketMQ's request codes has each of them with its state."""

import re

import pytest

from docs._ext import rocketmq_codes
from rocketbroker.codec.remoting.request_code import RequestCode

ROWS = {
    int(code): (name, state)
    for code, name, state in re.findall(r"^\| (\d+) \| (\w+) \| (.+) \|$", rocketmq_codes.render(), re.MULTILINE)
}


def test_each_code_has_its_row():
    assert {code: name for code, (name, _) in ROWS.items()} == {code.value: code.name for code in RequestCode}


def test_a_code_is_served_or_sent_or_named_as_missing():
    served = rocketmq_codes.served_codes()

    assert {code for code, (_, state) in ROWS.items() if not state.startswith(("no: ", "sent: "))} == set(served)
    assert set(rocketmq_codes.SENT).isdisjoint(served)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (RequestCode.SEND_MESSAGE, "broker"),
        (RequestCode.GET_ROUTEINFO_BY_TOPIC, "name server"),
        (RequestCode.POP_MESSAGE, "no: consumption by POP"),
        (RequestCode.CHECK_TRANSACTION_STATE, "sent: broker to a producer"),
    ],
)
def test_examples(code: RequestCode, state: str):
    assert ROWS[code.value] == (code.name, state)
