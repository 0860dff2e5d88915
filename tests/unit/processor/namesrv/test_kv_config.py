"""PUT_KV_CONFIG (100), GET_KV_CONFIG (101), DELETE_KV_CONFIG (102), GET_KVLIST_BY_NAMESPACE (219)."""

import json
from pathlib import Path

import pytest

from rocketbroker.codec.remoting.headers.namesrv import PutKVConfigRequestHeader
from rocketbroker.codec.remoting.remoting_command import to_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import RecordedFrame, recorded_answer, recorded_frames

CODES = (100, 101, 102, 219)


def recorded_story() -> list[RecordedFrame]:
    """Return the requests of one recorded client, in their order."""
    return [
        frame
        for frame in recorded_frames()
        if frame.sender == "raw-json" and frame.from_client and frame.command.code in CODES
    ]


def test_the_recorded_story_of_one_client(namesrv: NamesrvFixture) -> None:
    story = recorded_story()
    assert [frame.command.code for frame in story] == [100, 101, 101, 219, 219, 102]
    for asked in story:
        answer, expected = namesrv.replay(asked), recorded_answer(asked).command
        assert (answer.code, answer.remark) == (expected.code, expected.remark)
        assert to_ext_fields(answer.header) == expected.header
        assert answer.body == bytes(expected.body)


def test_a_value_is_on_disk_when_the_answer_comes(namesrv: NamesrvFixture, tmp_path: Path) -> None:
    assert namesrv.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader("ns", "192.0.2.1", "v")).code == 0
    assert json.loads((tmp_path / "kvConfig.json").read_bytes()) == {"configTable": {"ns": {"192.0.2.1": "v"}}}


@pytest.mark.parametrize(
    ("namespace", "key", "named"),
    [
        ("", "k", "namespace ''"),
        ("n s", "k", "namespace 'n s'"),
        ("ns", "", "key ''"),
        ("ns", "k\x00", "without blanks and control characters"),
        ("ORDER_TOPIC_CONFIG", "../T", "topic: ../T, contains illegal characters"),
    ],
)
def test_bad_names_are_rejected(namesrv: NamesrvFixture, tmp_path: Path, namespace: str, key: str, named: str) -> None:
    answer = namesrv.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader(namespace, key, "v"))
    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert named in (answer.remark or "")
    assert not (tmp_path / "kvConfig.json").exists()


def test_a_disk_that_takes_nothing_is_reported(namesrv: NamesrvFixture, tmp_path: Path) -> None:
    (tmp_path / "kvConfig.json.tmp").mkdir()
    answer = namesrv.ask(RequestCode.PUT_KV_CONFIG, PutKVConfigRequestHeader("ns", "k", "v"))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "cannot be stored in kvConfigPath" in (answer.remark or "")
    assert (answer.remark or "").endswith("and make the change again")
