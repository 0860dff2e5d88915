"""Access control of a server: first users, keys, migration, own signature."""

import json
import logging
from pathlib import Path

import pytest

from rocketbroker.app.access_control import KEY_FILE, AccessControl, own_signer
from rocketbroker.auth.access_store import FILE_NAME
from rocketbroker.codec.remoting.bodies.auth import UserInfo
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import CodecError, ConfigError
from tests.support.fakes import FakeClock

ROOT = json.dumps({"username": "root", "password": "root-secret"})
INNER = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})


def config(**settings: object) -> TransportConfig:
    return TransportConfig(authentication_enabled=True, **settings)  # type: ignore[arg-type]


async def started(folder: Path, **settings: object) -> AccessControl:
    access = AccessControl(config(**settings), "C", folder, FakeClock())
    access.load()
    await access.start()
    return access


async def test_the_users_of_the_settings_are_created_once(tmp_path: Path):
    given = {"init_authentication_user": ROOT, "inner_client_authentication_credentials": INNER}
    access = await started(tmp_path, **given)
    assert {name: user.is_super for name, user in access.store.rules.users.items()} == {"root": True, "inner": True}
    await access.store.update_user(UserInfo("root", "changed-secret"))
    await access.stop()
    again = await started(tmp_path, **given)
    assert again.store.rules.users["root"].secret == "changed-secret"
    await again.stop()


async def test_a_server_without_users_does_not_start(tmp_path: Path):
    with pytest.raises(ConfigError, match="there is no user: name the first one by initAuthenticationUser="):
        await started(tmp_path)


@pytest.mark.parametrize("name", ["init_authentication_user", "inner_client_authentication_credentials"])
def test_users_that_are_none_are_rejected_without_their_secret(tmp_path: Path, name: str):
    with pytest.raises(ConfigError) as caught:
        AccessControl(config(**{name: '{"user":"root","password":"s3cret"}'}), "C", tmp_path, FakeClock())
    assert name.replace("_", "") in str(caught.value).lower()
    assert "s3cret" not in str(caught.value)


async def test_a_table_whose_key_is_lost_is_not_replaced(tmp_path: Path):
    access = await started(tmp_path, init_authentication_user=ROOT)
    await access.stop()
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(ConfigError, match="is missing"):
        AccessControl(config(init_authentication_user=ROOT), "C", tmp_path, FakeClock())


async def test_the_folder_of_the_setting_wins(tmp_path: Path):
    access = await started(tmp_path / "a", init_authentication_user=ROOT, auth_config_path=str(tmp_path / "b"))
    await access.stop()
    assert not (tmp_path / "a").exists()
    assert {path.name for path in (tmp_path / "b").iterdir()} == {FILE_NAME, KEY_FILE}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "b").iterdir()} == {0o600}


async def test_another_secret_of_the_inner_user_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    access = await started(tmp_path, inner_client_authentication_credentials=INNER)
    await access.stop()
    with caplog.at_level(logging.WARNING):
        other = await started(
            tmp_path, inner_client_authentication_credentials=INNER.replace("inner-secret", "rolled-secret")
        )
    await other.stop()
    assert "User:inner has another secret than innerClientAuthenticationCredentials" in caplog.text
    assert "rolled-secret" not in caplog.text


async def test_users_of_access_control_1_are_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("yaml")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(
        "accounts:\n  - accessKey: the-shop\n    secretKey: secret-12345\n    topicPerms:\n      - T=PUB\n"
    )
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    access = await started(tmp_path / "table", init_authentication_user=ROOT, migrate_auth_from_v1_enabled=True)
    await access.stop()
    assert access.store.rules.users.keys() == {"root", "the-shop"}
    assert "the-shop" in access.store.rules.acls


def test_own_requests_are_signed_whether_or_not_others_are_checked():
    signer = own_signer(TransportConfig(inner_client_authentication_credentials=INNER))
    assert signer is not None
    command = request(RequestCode.REGISTER_BROKER)
    signer.sign(command)
    assert command.header["AccessKey"] == "inner"
    assert own_signer(TransportConfig()) is None


def test_access_control_is_off_by_default(tmp_path: Path):
    assert AccessControl.of(TransportConfig(), "C", tmp_path, FakeClock()) is None
    assert list(tmp_path.iterdir()) == []


AUTH = "org.apache.rocketmq.auth"
CLASSES = {
    "authentication_provider": f"{AUTH}.authentication.provider.DefaultAuthenticationProvider",
    "authentication_metadata_provider": f"{AUTH}.authentication.provider.LocalAuthenticationMetadataProvider",
    "authentication_strategy": f"{AUTH}.authentication.strategy.StatefulAuthenticationStrategy",
    "authorization_provider": f"{AUTH}.authorization.provider.DefaultAuthorizationProvider",
    "authorization_metadata_provider": f"{AUTH}.authorization.provider.LocalAuthorizationMetadataProvider",
    "authorization_strategy": f"{AUTH}.authorization.strategy.StatelessAuthorizationStrategy",
}


def test_rocketmqs_own_classes_are_taken_and_no_others(tmp_path: Path):
    AccessControl(config(**CLASSES), "C", tmp_path, FakeClock())
    for name in CLASSES:
        with pytest.raises(ConfigError, match=r"=org\.example\.Mine is rejected: this server loads no classes"):
            AccessControl(config(**{name: "org.example.Mine"}), "C", tmp_path, FakeClock())


async def test_a_copy_of_the_master_is_taken_over_once(tmp_path: Path):
    given = {"init_authentication_user": ROOT, "inner_client_authentication_credentials": INNER}
    master, slave = await started(tmp_path / "m", **given), await started(tmp_path / "s", **given)
    asked: list[str] = []

    async def fetch(key_id: str) -> bytes:
        asked.append(key_id)
        assert master.copy_seal is not None
        return (await master.store.copy(master.copy_seal)).encode()

    # The same users by the same settings: nothing is newer.
    await slave.follow(fetch)
    assert slave.store.data_version == master.store.data_version
    await master.store.create_user(UserInfo("joe", "joe-secret"))
    for _ in range(2):
        await slave.follow(fetch)
        assert slave.store.rules.users == master.store.rules.users
    assert len(set(asked)) == 1
    for access in (master, slave):
        await access.stop()


async def test_a_copy_for_other_credentials_is_rejected(tmp_path: Path):
    master = await started(tmp_path / "m", inner_client_authentication_credentials=INNER)
    await master.store.create_user(UserInfo("joe", "joe-secret"))
    other = await started(tmp_path / "s", inner_client_authentication_credentials=INNER.replace("inner-s", "other-s"))
    alone = await started(tmp_path / "a", init_authentication_user=ROOT)

    async def fetch(_key_id: str) -> bytes:
        assert master.copy_seal is not None
        return (await master.store.copy(master.copy_seal)).encode()

    with pytest.raises(CodecError, match="sealed by the key"):
        await other.follow(fetch)
    await alone.follow(fetch)
    for access in (master, other, alone):
        assert ("joe" in access.store.rules.users) == (access is master)
        await access.stop()
