"""UPDATE_NAMESRV_CONFIG (318), GET_NAMESRV_CONFIG (319)."""

from pathlib import Path

import pytest

from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.namesrv_fixture import NamesrvFixture
from tests.support.namesrv_session import recorded_answer, recorded_requests


def test_the_recorded_update_is_taken(namesrv: NamesrvFixture) -> None:
    asked = recorded_requests(318)[0]
    answer, expected = namesrv.replay(asked), recorded_answer(asked).command
    assert (answer.code, answer.remark) == (expected.code, expected.remark)


def test_settings_shown_have_rocketmq_s_names_and_defaults(namesrv: NamesrvFixture) -> None:
    asked = recorded_requests(319)[0]
    theirs = dict(line.split("=", 1) for line in bytes(recorded_answer(asked).command.body).decode().splitlines())
    ours = dict(line.split("=", 1) for line in bytes(namesrv.replay(asked).body).decode().splitlines())
    shared = ours.keys() & theirs.keys()
    assert len(shared) >= 11
    differing = {name for name in shared if ours[name] != theirs[name]}
    # The recorded server was told where its files are, and to notify.
    assert differing == {"configStorePath", "kvConfigPath", "notifyMinBrokerIdChanged"}


def test_a_change_acts_at_once_and_is_stored(namesrv: NamesrvFixture, tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    path.write_text("# mine\nkvConfigPath=/somewhere\n")
    assert namesrv.ask(RequestCode.GET_UNIT_TOPIC_LIST).code == 0
    body = b"enableTopicList=false\norderMessageEnable=true\n"
    assert namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body).code == 0
    assert namesrv.ask(RequestCode.GET_UNIT_TOPIC_LIST).remark == "disable"
    stored = path.read_text().splitlines()
    assert stored[:2] == ["# mine", "kvConfigPath=/somewhere"]
    assert sorted(stored[2:]) == ["enableTopicList=false", "orderMessageEnable=true"]
    assert b"enableTopicList=false\n" in namesrv.ask(RequestCode.GET_NAMESRV_CONFIG).body


def test_an_unchanged_value_writes_nothing(namesrv: NamesrvFixture, tmp_path: Path) -> None:
    assert namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=true").code == 0
    assert not (tmp_path / "namesrv.properties").exists()


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        (b"kvConfigPath=/etc/passwd\n", ResponseCode.NO_PERMISSION, "kvConfigPath cannot be changed at run time"),
        (b"configStorePath=/x\n", ResponseCode.NO_PERMISSION, "configStorePath"),
        (b"enableTopicList=false\nkvConfigPath=/x\n", ResponseCode.NO_PERMISSION, "kvConfigPath"),
        (b"enableTopicLists=false\n", ResponseCode.INVALID_PARAMETER, "did you mean enableTopicList?"),
        (b"enableTopicList=perhaps\n", ResponseCode.INVALID_PARAMETER, "enableTopicList"),
        (b"", ResponseCode.INVALID_PARAMETER, "key=value"),
    ],
)
def test_a_fixed_setting_is_named_and_nothing_changes(
    namesrv: NamesrvFixture, tmp_path: Path, body: bytes, code: int, named: str
) -> None:
    answer = namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert answer.code == code
    assert named in (answer.remark or "")
    assert namesrv.config.enable_topic_list
    assert not (tmp_path / "namesrv.properties").exists()


def test_routes_are_encoded_again_after_a_change(namesrv: NamesrvFixture) -> None:
    namesrv.register_recorded_broker()
    before = namesrv.manager.routes.encoded("TBW102", standard_json=True)
    assert namesrv.manager.routes.encoded("TBW102", standard_json=True) is before
    namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"supportActingMaster=true\n")
    after = namesrv.manager.routes.encoded("TBW102", standard_json=True)
    assert after == before
    assert after is not before


def test_a_file_that_cannot_be_written_is_reported(namesrv: NamesrvFixture, tmp_path: Path) -> None:
    (tmp_path / "namesrv.properties").mkdir()
    answer = namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"enableTopicList=false\n")
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "cannot be stored in" in (answer.remark or "")
