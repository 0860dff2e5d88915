"""Access control of a server: first users, keys, migration, own signature."""

import asyncio
import json
import logging
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from rocketbroker.app.access_control import KEY_FILE, AccessControl, own_signer
from rocketbroker.auth.access_store import FILE_NAME, AccessTable
from rocketbroker.auth.authorization import Right
from rocketbroker.auth.errors import AuthorizationError
from rocketbroker.auth.policies import Action, Resource
from rocketbroker.auth.table_lock import FILE_NAME as LOCK_FILE
from rocketbroker.codec.remoting.bodies.auth import UserInfo
from rocketbroker.codec.remoting.remoting_command import request
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import CodecError, ConfigError
from tests.support.fakes import FakeClock

Start = Callable[..., Awaitable[AccessControl]]
ROOT = json.dumps({"username": "root", "password": "root-secret"})
INNER = json.dumps({"accessKey": "inner", "secretKey": "inner-secret"})


def config(**settings: object) -> TransportConfig:
    return TransportConfig(authentication_enabled=True, **settings)  # type: ignore[arg-type]


@pytest.fixture
async def started() -> AsyncIterator[Start]:
    """Start servers, and stop at the end those that run."""
    running: list[AccessControl] = []

    async def start(folder: Path, is_slave: bool = False, **settings: object) -> AccessControl:
        access = AccessControl(config(**settings), "C", folder, FakeClock(), is_slave=is_slave)
        running.append(access)
        access.load()
        await access.start()
        return access

    yield start
    for access in running:
        await stop(access)


async def stop(access: AccessControl) -> None:
    await access.stop()
    access.release()


async def test_the_users_of_the_settings_are_created_once(started: Start, tmp_path: Path):
    given = {"init_authentication_user": ROOT, "inner_client_authentication_credentials": INNER}
    access = await started(tmp_path, **given)
    assert {name: user.is_super for name, user in access.store.rules.users.items()} == {"root": True, "inner": True}
    await access.store.update_user(UserInfo("root", "changed-secret"))
    await stop(access)
    again = await started(tmp_path, **given)
    assert again.store.rules.users["root"].secret == "changed-secret"


async def test_secrets_that_are_easy_to_guess_are_logged_without_them(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    own_signer(config(inner_client_authentication_credentials=INNER))
    AccessControl(config(init_authentication_user=ROOT), "C", tmp_path, FakeClock())
    assert caplog.messages == []
    own_signer(config(inner_client_authentication_credentials='{"accessKey":"inner","secretKey":"s3cret7"}'))
    AccessControl(config(init_authentication_user='{"username":"root","password":"s3"}'), "C", tmp_path, FakeClock())
    few = "are too few to withstand guesses; use 8 or more, best random ones"
    assert caplog.messages == [
        f"access control: innerClientAuthenticationCredentials: password of user inner: 7 characters {few}",
        f"access control: initAuthenticationUser: password of user root: 2 characters {few}",
    ]


async def test_a_server_without_users_does_not_start(started: Start, tmp_path: Path):
    with pytest.raises(ConfigError, match="there is no user: name the first one by initAuthenticationUser="):
        await started(tmp_path)


@pytest.mark.parametrize("name", ["init_authentication_user", "inner_client_authentication_credentials"])
def test_users_that_are_none_are_rejected_without_their_secret(tmp_path: Path, name: str):
    with pytest.raises(ConfigError) as caught:
        AccessControl(config(**{name: '{"user":"root","password":"s3cret"}'}), "C", tmp_path, FakeClock())
    assert name.replace("_", "") in str(caught.value).lower()
    assert "s3cret" not in str(caught.value)


async def test_a_backup_brings_back_users_and_passwords_of_its_time(started: Start, tmp_path: Path):
    backup = tmp_path / "backup"
    access = await started(tmp_path / "config", init_authentication_user=ROOT)
    await access.store.create_user(UserInfo("joe", "first-secret"))
    shutil.copytree(tmp_path / "config", backup)
    await access.store.update_user(UserInfo("root", "later-secret"))
    await access.store.delete_user("joe")
    restored = await started(backup, init_authentication_user=ROOT)
    assert {name: user.secret for name, user in restored.store.rules.users.items()} == {
        "root": "root-secret",
        "joe": "first-secret",
    }


@pytest.mark.proves("Tables", "users and policies: a damaged table")
async def test_a_table_whose_key_is_lost_is_not_replaced(started: Start, tmp_path: Path):
    access = await started(tmp_path, init_authentication_user=ROOT)
    await stop(access)
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(ConfigError, match="is missing"):
        AccessControl(config(init_authentication_user=ROOT), "C", tmp_path, FakeClock())


async def test_the_folder_of_the_setting_wins(started: Start, tmp_path: Path):
    access = await started(tmp_path / "a", init_authentication_user=ROOT, auth_config_path=str(tmp_path / "b"))
    await stop(access)
    assert not (tmp_path / "a").exists()
    assert {path.name for path in (tmp_path / "b").iterdir()} == {FILE_NAME, KEY_FILE, LOCK_FILE}
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "b").iterdir()} == {0o600}


async def test_another_secret_of_the_inner_user_is_logged(
    started: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    access = await started(tmp_path, init_authentication_user=ROOT)
    await access.store.create_user(UserInfo("inner", "rolled-secret"))
    await stop(access)
    await started(tmp_path, **BOTH)
    assert "User:inner has another secret than innerClientAuthenticationCredentials" in caplog.text
    assert "rolled-secret" not in caplog.text


@pytest.fixture
def plain_acl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("yaml")
    file = tmp_path / "home" / "conf" / "plain_acl.yml"
    file.parent.mkdir(parents=True)
    file.write_text("accounts:\n  - accessKey: the-shop\n    secretKey: secret-12345\n    topicPerms:\n      - T=PUB\n")
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path / "home"))
    return file


MIGRATING = {"init_authentication_user": ROOT, "migrate_auth_from_v1_enabled": True}


async def test_users_of_access_control_1_are_taken_over_once(
    started: Start, tmp_path: Path, plain_acl: Path, caplog: pytest.LogCaptureFixture
):
    access = await started(tmp_path / "table", **MIGRATING)
    assert access.store.rules.users.keys() == {"root", "the-shop"}
    assert "the-shop" in access.store.rules.acls
    await access.store.delete_user("the-shop")
    await stop(access)
    with caplog.at_level(logging.INFO):
        again = await started(tmp_path / "table", **MIGRATING)
    assert again.store.rules.users.keys() == {"root"}
    assert "done before, and the files are not read again; set it to false" in caplog.text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("accounts: &a [*a]", "anchors are not allowed"),
        ("accounts:\n  - !!python/object/apply:os.system [id]", "the tag .* is not allowed"),
        ("accounts: 7", "accounts: it is a text, and must be a list"),
        ("accounts:\n  - accessKey: a\n    secretKey: [1]", r"accounts\[0\].secretKey: it is a list"),
    ],
)
async def test_files_of_access_control_1_that_are_wrong_stop_the_start_and_change_nothing(
    started: Start, tmp_path: Path, plain_acl: Path, text: str, reason: str
):
    await stop(await started(tmp_path / "table", init_authentication_user=ROOT))
    before = (tmp_path / "table" / FILE_NAME).read_bytes()
    await asyncio.to_thread(plain_acl.write_text, text)
    with pytest.raises(ConfigError, match=reason):
        await started(tmp_path / "table", **MIGRATING)
    assert (tmp_path / "table" / FILE_NAME).read_bytes() == before


async def test_without_files_of_access_control_1_a_later_start_may_find_them(
    started: Start, tmp_path: Path, plain_acl: Path, caplog: pytest.LogCaptureFixture
):
    elsewhere = await asyncio.to_thread(plain_acl.rename, tmp_path / "elsewhere.yml")
    await stop(await started(tmp_path / "table", **MIGRATING))
    assert "there is no plain_acl.yml in" in caplog.text
    await asyncio.to_thread(elsewhere.rename, plain_acl)
    assert "the-shop" in (await started(tmp_path / "table", **MIGRATING)).store.rules.users


async def test_a_slave_migrates_nothing(started: Start, tmp_path: Path, plain_acl: Path):
    slave = await started(tmp_path / "table", is_slave=True, **MIGRATING)
    assert slave.store.rules.users.keys() == {"root"}
    assert not slave.store.is_migrated


async def test_an_inner_user_without_rights_is_logged(started: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture):
    access = await started(tmp_path, **BOTH)
    await access.store.update_user(UserInfo("inner", None, "Normal", "disable"))
    await stop(access)
    await started(tmp_path, **BOTH)
    assert "User:inner of innerClientAuthenticationCredentials is Normal and disable" in caplog.text


def test_own_requests_are_signed_whether_or_not_others_are_checked():
    signer = own_signer(TransportConfig(inner_client_authentication_credentials=INNER))
    assert signer is not None
    command = request(RequestCode.REGISTER_BROKER)
    signer.sign(command)
    assert command.header["AccessKey"] == "inner"
    assert own_signer(TransportConfig()) is None


@pytest.mark.parametrize(("option", "shown"), [("", "-c C"), ("-b <name server>", "-b <name server>")])
async def test_a_refusal_has_the_command_that_reaches_the_table(tmp_path: Path, option: str, shown: str):
    access = AccessControl(config(init_authentication_user=ROOT), "C", tmp_path, FakeClock(), option=option)
    access.load()
    await access.start()
    await access.store.create_user(UserInfo("joe", "joe-secret"))
    with pytest.raises(AuthorizationError, match=f"mqadmin createAcl {shown} -s User:joe -r Topic:T -a Pub -d Allow"):
        access.store.rules.check("joe", [Right(Resource.topic("T"), (Action.PUB,))], "10.0.0.1")
    await stop(access)


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


class Answers:
    """Answers of a master to requests for its table, and what a test does to them on their way."""

    def __init__(self, master: AccessControl) -> None:
        self._master = master
        self.asked: list[tuple[str, str]] = []
        self.sent: list[tuple[bytes, str]] = []
        self.on_the_way: Callable[[bytes, str], tuple[bytes, str]] = lambda body, tag: (body, tag)

    async def fetch(self, key_id: str, nonce: str) -> tuple[bytes, str]:
        self.asked.append((key_id, nonce))
        seal = self._master.copy_seal
        assert seal is not None
        body = (await self._master.store.copy(seal)).encode()
        self.sent.append((body, seal.copy_tag(nonce, body)))
        return self.on_the_way(*self.sent[-1])


BOTH = {"init_authentication_user": ROOT, "inner_client_authentication_credentials": INNER}


async def test_a_copy_of_the_master_is_taken_over_once(started: Start, tmp_path: Path):
    master, slave = await started(tmp_path / "m", **BOTH), await started(tmp_path / "s", is_slave=True, **BOTH)
    answers = Answers(master)

    # The same users by the same settings: nothing is newer.
    await slave.follow(answers.fetch)
    assert slave.store.data_version == master.store.data_version
    await master.store.create_user(UserInfo("joe", "joe-secret"))
    for _ in range(2):
        await slave.follow(answers.fetch)
        assert slave.store.rules.users == master.store.rules.users
    assert len({key_id for key_id, _ in answers.asked}) == 1
    assert len({nonce for _, nonce in answers.asked}) == len(answers.asked)


def promoted(body: bytes, tag: str) -> tuple[bytes, str]:
    table = AccessTable.decode(body)
    table.users["mallory"].user_type = "Super"
    return table.encode(), tag


async def test_a_copy_that_was_changed_or_sent_before_is_rejected(started: Start, tmp_path: Path):
    master, slave = await started(tmp_path / "m", **BOTH), await started(tmp_path / "s", is_slave=True, **BOTH)
    answers = Answers(master)
    await master.store.create_user(UserInfo("mallory", "mallory-secret"))
    for change in (
        promoted,
        lambda body, tag: (body.replace(b"Normal", b"Super "), tag),
        lambda body, _tag: (body, ""),
        lambda body, _tag: (body, "\u00e4" * 64),
        lambda _body, _tag: answers.sent[0],
    ):
        answers.on_the_way = change
        with pytest.raises(CodecError, match="was changed on its way, is an old one, or its sender has other inner"):
            await slave.follow(answers.fetch)
        assert "mallory" not in slave.store.rules.users


async def test_a_copy_for_other_credentials_is_rejected(started: Start, tmp_path: Path):
    master = await started(tmp_path / "m", inner_client_authentication_credentials=INNER)
    await master.store.create_user(UserInfo("joe", "joe-secret"))
    other = await started(tmp_path / "s", inner_client_authentication_credentials=INNER.replace("inner-s", "other-s"))
    alone = await started(tmp_path / "a", init_authentication_user=ROOT)
    answers = Answers(master)

    with pytest.raises(CodecError, match="its sender has other inner"):
        await other.follow(answers.fetch)
    await alone.follow(answers.fetch)
    for access in (master, other, alone):
        assert ("joe" in access.store.rules.users) == (access is master)


async def test_other_inner_credentials_end_the_rights_of_the_earlier_ones(started: Start, tmp_path: Path):
    access = await started(tmp_path, **BOTH)
    await stop(access)
    servers = json.dumps({"accessKey": "servers", "secretKey": "servers-secret"})
    again = await started(tmp_path, **{**BOTH, "inner_client_authentication_credentials": servers})
    assert again.store.rules.users.keys() == {"root", "servers"}


async def test_a_second_server_with_the_folder_does_not_start(started: Start, tmp_path: Path):
    access = await started(tmp_path, init_authentication_user=ROOT)
    with pytest.raises(ConfigError, match=rf"{tmp_path} is in use by another server \(process {os.getpid()}\)"):
        await started(tmp_path, init_authentication_user=ROOT)
    await stop(access)
    await started(tmp_path, init_authentication_user=ROOT)
