"""Settings of access control: what is taken, what is rejected, and what is never shown."""

import json
from pathlib import Path

import pytest

from rocketbroker.common.config.auth_settings import parse_codes
from rocketbroker.common.config.current_settings import config_text
from rocketbroker.common.config.load import load_broker_settings, load_namesrv_settings
from rocketbroker.common.config.proxy_settings import load_proxy_settings
from rocketbroker.common.errors import ConfigError

ON = "authenticationEnabled=true\nauthorizationEnabled=true\n"
USER = 'initAuthenticationUser={"username":"root","password":"s3cret-of-root"}\n'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "settings.properties"


@pytest.mark.parametrize("load", [load_broker_settings, load_namesrv_settings])
def test_both_servers_take_the_switches(load, file: Path):
    file.write_text(ON + USER)
    settings = load(file)
    assert settings.transport.authentication_enabled
    assert settings.transport.authorization_enabled
    assert not settings.transport.authorization_open_as_apache
    assert settings.warnings == ()


def test_both_are_off_by_default(file: Path):
    file.write_text("")
    transport = load_broker_settings(file).transport
    assert not transport.authentication_enabled
    assert not transport.authorization_enabled


@pytest.mark.parametrize("load", [load_broker_settings, load_namesrv_settings])
def test_rights_need_a_signature(load, file: Path):
    file.write_text("authorizationEnabled=true\n")
    with pytest.raises(ConfigError, match="authorizationEnabled=true needs authenticationEnabled=true"):
        load(file)


@pytest.mark.parametrize(
    "line",
    [
        "authenticationWhitelist=10,many",
        "authorizationWhitelist=-1",
        "authorizationWhitelist=99999999999",
        "authenticationEnabled=yes",
    ],
)
def test_what_cannot_be_kept_is_rejected(file: Path, line: str):
    file.write_text(line + "\n")
    with pytest.raises(ConfigError, match=f"{line.partition('=')[0]}=.* is not valid: it takes "):
        load_broker_settings(file)


@pytest.mark.parametrize("name", ["authenticationWhitelist", "authorizationWhitelist"])
def test_requests_for_users_are_on_no_white_list(file: Path, name: str):
    file.write_text(f"{name}=10,3001\n")
    with pytest.raises(ConfigError, match="3001 is a request for users and policies"):
        load_broker_settings(file)


def test_secrets_are_shown_to_nobody(file: Path):
    file.write_text(USER + 'innerClientAuthenticationCredentials={"accessKey":"in","secretKey":"s3cret-too"}\n')
    text = config_text(load_broker_settings(file).models)
    assert "initAuthenticationUser=******" in text
    assert "innerClientAuthenticationCredentials=******" in text
    assert "s3cret" not in text
    file.write_text("initAuthenticationUser=s3cret" + "x" * 9_000 + "\n")
    with pytest.raises(ConfigError) as caught:
        load_broker_settings(file)
    assert "s3cret" not in str(caught.value)


def test_a_white_list_of_codes():
    assert parse_codes(" 10, 11,,10 ") == {10, 11}
    assert parse_codes("") == frozenset()


def test_a_proxy_takes_its_credentials_as_a_text_or_as_an_object(tmp_path: Path):
    path = tmp_path / "rmq-proxy.json"
    inner = {"accessKey": "in", "secretKey": "s3cret"}
    for value in (inner, json.dumps(inner)):
        given = {"authenticationEnabled": True, "innerClientAuthenticationCredentials": value}
        path.write_text(json.dumps(given))
        found = load_proxy_settings(path).proxy
        assert json.loads(found.inner_client_authentication_credentials) == inner
    path.write_text('{"authorizationEnabled": true}')
    with pytest.raises(ConfigError, match="authorizationEnabled=true needs authenticationEnabled=true"):
        load_proxy_settings(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("authenticationWhitelist=105,25", "25 is a request that changes settings, which needs credentials"),
        ("authenticationWhitelist=318", "318 is a request that changes settings"),
        ("authenticationWhitelist=3001", "3001 is a request for users and policies"),
        ("authorizationWhitelist=3010", "3010 is a request for users and policies"),
    ],
)
def test_what_needs_a_user_is_on_no_white_list(file: Path, line: str, reason: str):
    file.write_text(line + "\n")
    with pytest.raises(ConfigError, match=reason):
        load_broker_settings(file)
    file.write_text("authorizationWhitelist=25,318\nauthenticationWhitelist=105\n")
    load_broker_settings(file)
