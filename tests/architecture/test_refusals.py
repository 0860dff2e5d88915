"""The page of refusals and the code say the same."""

import re
from pathlib import Path

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.processor.support.put_answers import RESPONSE_CODES
from rocketbroker.store.commitlog.put_message import PutMessageStatus, Refusal

PAGE = (Path(__file__).resolve().parent.parent.parent / "docs" / "operations" / "refusals.md").read_text()


def test_each_rejecting_status_is_on_the_page_with_its_code():
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([A-Z_]+) \((\d+)\) \|", PAGE, re.MULTILINE)

    assert {(status, code, int(number)) for status, code, number in rows} == {
        (status.name, code.name, code.value) for status, code in RESPONSE_CODES.items()
    }
    assert len(rows) == len(PutMessageStatus) - 1


def test_each_standing_cause_has_its_own_status():
    assert len({refusal.value for refusal in Refusal}) == len(list(Refusal))


def test_each_setting_on_the_page_is_one_of_ours():
    of_topics = {"writeQueueNums", "readQueueNums"}
    models = (BrokerConfig, MessageStoreConfig, NamesrvConfig, TransportConfig)
    names = {name for model in models for name in fields_by_name(model)} | of_topics
    cells = [line.rsplit("|", 2)[1] for line in PAGE.splitlines() if line.startswith("| ")]
    wanted = {word for cell in cells for word in re.findall(r"`([a-z]+[A-Z]\w+)`", cell)}

    assert wanted - names == set()
    assert wanted > of_topics
