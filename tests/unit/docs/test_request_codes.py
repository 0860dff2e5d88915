"""The page of request codes has each code of RocketMQ with its state."""

import re

import pytest

from docs._ext import request_codes
from rocketbroker.codec.remoting.request_code import RequestCode

SERVED, NOT_SERVED = request_codes.render().split("\n## Not served\n")
ROW = re.compile(r"^\| (\d+) \| (\w+) \| ([^|]+) \|", re.MULTILINE)
OTHERS = {int(code): (name, state) for code, name, state in ROW.findall(NOT_SERVED)}


def test_each_code_has_its_row():
    found = {int(code): name for code, name, _ in ROW.findall(SERVED)} | {
        code: name for code, (name, _) in OTHERS.items()
    }

    assert found == {code.value: code.name for code in RequestCode}


def test_a_code_is_served_or_sent_or_named_as_missing():
    served = request_codes.served_codes()

    assert set(OTHERS).isdisjoint(served)
    assert {code for code, (_, state) in OTHERS.items() if state.startswith("sent: ")} == set(request_codes.SENT)


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (RequestCode.ADD_BROKER, "broker container"),
        (RequestCode.CHECK_TRANSACTION_STATE, "sent: broker to a producer"),
    ],
)
def test_examples(code: RequestCode, state: str):
    assert OTHERS[code.value] == (code.name, state)
