import asyncio
import json
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import pytest

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.requester import Requester
from rocketbroker.auth.users import User, UserType
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig, MessageStoreConfig, TransportConfig
from rocketbroker.common.config.auth_settings import AuthSettings
from rocketbroker.common.config.fields import fields_by_name, trait_of
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.tls_settings import TlsSettings
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.admin.settings import SettingsRequests
from tests.support.fakes import FakeConnection
from tests.support.processor_calls import call, call_async, family, recorded, refusal_async


@pytest.fixture
def executor() -> Iterator[Executor]:
    with ThreadPoolExecutor(1) as made:
        yield made


@pytest.fixture
def changes() -> list[list[str]]:
    return []


@pytest.fixture
def registered():
    return []


@pytest.fixture
def models():
    return (
        BrokerConfig(broker_name="broker-a", broker_ip1="127.0.0.1"),
        MessageStoreConfig(),
        TransportConfig(listen_port=10911),
    )


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "broker.conf"
    file.write_text("# mine\nbrokerName=broker-a\n")
    return file


@pytest.fixture
def processor(parts, models, path, executor, registered, changes):
    return family(
        SettingsRequests,
        parts,
        models=models,
        path=path,
        executor=executor,
        register=lambda: registered.append(models[0].broker_ip1),
        on_change=lambda names: changes.append(sorted(names)),
    )


@pytest.mark.parametrize("line", [b"protectedMode=false", b"adminWhiteList=192.0.2.7", b"logLevel=DEBUG"])
async def test_the_broker_is_told_the_names_of_changed_settings(processor, changes, line: bytes):
    assert (await call_async(processor.update_broker_config, body=line))[0] == ResponseCode.SUCCESS
    assert changes == [[line.decode().partition("=")[0]]]


async def test_a_change_acts_is_stored_and_raises_the_version(parts, models, processor, path, registered):
    before = call(processor.get_broker_config)
    assert json.loads(before.fields["version"])["counter"] == 0
    parts.clock.advance(5)
    answer = await call_async(processor.update_broker_config, body=b"traceOn=false\nflushConsumerOffsetInterval=1234\n")
    assert answer == (0, None, {}, b"")
    assert models[0].trace_on is False
    assert path.read_text().splitlines()[:2] == ["# mine", "brokerName=broker-a"]
    assert {"traceOn=false", "flushConsumerOffsetInterval=1234"} <= set(path.read_text().splitlines())
    after = call(processor.get_broker_config)
    assert json.loads(after.fields["version"]) == {"counter": 1, "stateVersion": 0, "timestamp": parts.clock.time_ms()}
    assert b"traceOn=false\n" in after.body
    assert b"traceOn=true\n" in before.body
    assert registered == []


@pytest.mark.parametrize("change", [b"brokerIP1=127.0.0.9", b"listenPort=20911", b"brokerPermission=4"])
async def test_what_name_servers_know_is_registered_again(processor, registered, change):
    await call_async(processor.update_broker_config, body=change)
    assert len(registered) == 1
    assert (await call_async(processor.update_broker_config, body=change)).code == 0
    assert len(registered) == 1


async def test_registration_sees_the_new_address(processor, registered):
    await call_async(processor.update_broker_config, body=b"brokerIP1=127.0.0.9")
    assert registered == ["127.0.0.9"]


async def test_recorded_updates(processor):
    codes = []
    for command, theirs in recorded(25):
        name = bytes(command.body).partition(b"=")[0]
        if name == b"brokerConfigPath":
            code, remark = await refusal_async(processor.update_broker_config, body=command.body)
            assert code == theirs.code == ResponseCode.NO_PERMISSION
            assert "brokerConfigPath cannot be changed" in remark
        codes.append(theirs.code)
    assert ResponseCode.NO_PERMISSION in codes


def test_recorded_answers_have_the_same_shape(processor):
    for _, theirs in recorded(26):
        ours = call(processor.get_broker_config)
        assert (ours.code, ours.remark, set(ours.fields)) == (theirs.code, theirs.remark, set(theirs.fields))
        assert set(json.loads(ours.fields["version"])) == set(json.loads(theirs.fields["version"]))
        names = [[line.partition(b"=")[0] for line in answer.body.splitlines()] for answer in (ours, theirs)]
        assert names[0] == sorted(names[0])
        # The recorded broker tells of all its settings, ours of those that it acts on, under the same names.
        assert len(set(names[0]) & set(names[1])) > 50


@pytest.mark.parametrize(
    ("body", "code", "named"),
    [
        (b"storePathRootDir=/tmp/x", ResponseCode.NO_PERMISSION, "storePathRootDir cannot be changed"),
        (b"traceOnn=true", ResponseCode.INVALID_PARAMETER, "unknown setting traceOnn; did you mean traceOn?"),
        (b"traceOn=maybe", ResponseCode.INVALID_PARAMETER, "traceOn"),
        (b"traceOn=false\nlistenPort=70000", ResponseCode.INVALID_PARAMETER, "listenPort"),
        (b"", ResponseCode.INVALID_PARAMETER, "names no setting"),
        (b"a=b\n" * 10_000, ResponseCode.INVALID_PARAMETER, "40,000 bytes, above the limit of 32,768"),
    ],
)
async def test_bad_updates_are_named_and_change_nothing(models, processor, path, registered, body, code, named):
    found_code, remark = await refusal_async(processor.update_broker_config, body=body)
    assert found_code == code
    assert named in remark
    assert models[0].trace_on is True
    assert path.read_text() == "# mine\nbrokerName=broker-a\n"
    assert registered == []


async def test_a_change_that_cannot_be_stored_is_said(models, processor, path):
    path.unlink()
    path.mkdir()
    code, remark = await refusal_async(processor.update_broker_config, body=b"traceOn=false")
    assert code == ResponseCode.SYSTEM_ERROR
    assert "cannot be stored" in remark
    assert models[0].trace_on is False


async def test_changes_at_the_same_time_are_all_stored(processor, path):
    changes = (b"traceOn=false", b"regionId=R2", b"longPollingEnable=false")
    await asyncio.gather(*(call_async(processor.update_broker_config, body=change) for change in changes))
    assert {change.decode() for change in changes} <= set(path.read_text().splitlines())


@pytest.mark.parametrize(
    "line", [b"protectedMode=false", b"adminWhiteList=0.0.0.0/0", b"traceOn=false\nbrokerWhiteList=0.0.0.0/0"]
)
async def test_who_is_let_in_is_changed_by_super_users_alone(processor, models, path, line: bytes):
    before, stored = [model.model_copy() for model in models], path.read_text()
    command = request(0, None, line)
    with pytest.raises(
        BrokerResponseError, match=r"decides who is let in, and User:op is no Super user; let one"
    ) as no:
        await processor.update_broker_config(FakeConnection(), command, requester("op"))
    assert no.value.code == ResponseCode.NO_PERMISSION
    assert (list(models), path.read_text()) == (before, stored)

    answer = await processor.update_broker_config(FakeConnection(), command, requester("root", is_super=True))
    assert answer.code == ResponseCode.SUCCESS
    assert list(models) != before


async def test_other_settings_need_no_super_user(processor):
    answer = await processor.update_broker_config(FakeConnection(), request(0, None, b"traceOn=false"), requester("op"))
    assert answer.code == ResponseCode.SUCCESS


def requester(name: str, *, is_super: bool = False) -> Requester:
    rules = AccessRules({name: User(name, "secret-of-it", UserType.SUPER if is_super else UserType.NORMAL)})
    return Requester(name, "10.0.0.1", "C", lambda: rules, lambda _error: None, is_limited=False)


def test_each_setting_of_access_that_can_be_changed_is_for_super_users():
    """Settings of access control and TLS, and those with secrets, cannot be changed at run time at all."""
    for model in (BrokerConfig, NamesrvConfig, MessageStoreConfig, TransportConfig):
        for name, (attribute, field) in fields_by_name(model).items():
            trait = trait_of(field)
            is_access = attribute in {*AuthSettings.model_fields, *TlsSettings.model_fields} or trait.secret
            is_access = is_access or any(word in name.lower() for word in ("whitelist", "blacklist", "protected"))
            assert not (trait.hot and is_access) or trait.guards, name
            assert not trait.guards or trait.hot, name
