"""Table of users and policies: changes, answers only after the disk, failures, crashes, copies."""

import asyncio
import itertools
import json
import logging
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from rocketbroker.auth import access_store
from rocketbroker.auth.access_store import FILE_NAME, AccessStore, AccessTable
from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.errors import AuthConflictError, AuthError, AuthValueError
from rocketbroker.auth.policies import ANY_RESOURCE, Acl, Action, Decision, PolicyEntry, PolicyType, parse_resource
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.users import User, UserStatus, UserType
from rocketbroker.codec.remoting.bodies.auth import UserInfo
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion
from rocketbroker.common.errors import CodecError, ConfigError
from tests.support.fakes import FakeClock
from tests.support.recording_file_system import Disk, Loss, RecordingFileSystem
from tests.support.waiting import LIMIT_S, turns, until

SEAL = SecretSeal(bytes(range(32)))
OTHER_SEAL = SecretSeal(bytes(32))


def allow(resource: str, *actions: Action) -> PolicyEntry:
    return PolicyEntry(parse_resource(resource), actions or (Action.PUB,), Decision.ALLOW)


@pytest.fixture
def disk(tmp_path: Path) -> RecordingFileSystem:
    return RecordingFileSystem(tmp_path / "disk")


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def store(disk: RecordingFileSystem, clock: FakeClock) -> AsyncIterator[AccessStore]:
    held = AccessStore(disk.root / "config" / FILE_NAME, SEAL, clock, disk)
    assert not held.load()
    await held.start()
    yield held
    await held.stop()


def loaded(path: Path, seal: SecretSeal = SEAL) -> AccessStore:
    held = AccessStore(path, seal, FakeClock())
    assert held.load()
    return held


def names(rules: AccessRules) -> list[str]:
    return sorted(rules.users)


@pytest.mark.proves("Tables", "users and policies: answered after the disk")
async def test_users_and_policies_are_on_disk_when_a_change_is_answered(store: AccessStore):
    await store.create_user(UserInfo("joe", "geheim-7"))
    await store.create_user(UserInfo("root", "geheim-8", "Super", "disable"))
    await store.merge_acl(Acl("joe", (allow("Topic:T"),), (allow("*", Action.ALL),)))

    again = loaded(store.path).rules
    assert dict(again.users) == dict(store.rules.users)
    assert dict(again.acls) == dict(store.rules.acls)
    assert again.users["joe"] == User("joe", "geheim-7")
    assert again.acls["joe"] == Acl("joe", (allow("Topic:T"),), (allow("*", Action.ALL),))
    assert store.path.stat().st_mode & 0o777 == 0o600


async def test_the_file_is_readable_json_without_the_secret(store: AccessStore):
    await store.create_user(UserInfo("joe", "geheim-7"))
    await store.merge_acl(Acl("joe", (allow("Topic:T"),)))

    text = store.path.read_text()
    content = json.loads(text)
    assert "geheim" not in text
    assert sorted(content) == ["dataVersion", "keyId", "migratedFromV1", "policies", "users"]
    assert content["users"]["joe"]["userType"] == "Normal"
    assert content["policies"]["joe"]["policies"][0]["entries"][0]["resource"] == "Topic:T"
    assert "secret" not in repr(AccessTable.decode(text.encode()).users["joe"])


async def test_an_update_and_a_removal(store: AccessStore):
    await store.create_user(UserInfo("joe", "geheim"))
    await store.create_user(UserInfo("root", "geheim", "Super"))
    await store.merge_acl(Acl("joe", (allow("Topic:T"), allow("Topic:U")), (allow("*"),)))
    await store.update_user(UserInfo("joe", "neu", "Super"))
    assert store.rules.users["joe"] == User("joe", "neu", UserType.SUPER)

    await store.merge_acl(Acl("joe", (allow("Topic:U", Action.SUB),)))
    await store.delete_acl("joe", PolicyType.CUSTOM, parse_resource("Topic:T"))
    assert store.rules.acls["joe"] == Acl("joe", (allow("Topic:U", Action.SUB),), (allow("*"),))
    await store.delete_acl("joe", PolicyType.CUSTOM, parse_resource("Topic:U"))
    await store.delete_acl("joe", PolicyType.DEFAULT, ANY_RESOURCE)
    assert dict(store.rules.acls) == {}

    await store.merge_acl(Acl("joe", (allow("Topic:T"),)))
    await store.delete_acl("joe", PolicyType.CUSTOM, None)
    assert dict(store.rules.acls) == {}

    await store.merge_acl(Acl("joe", (allow("Topic:T"),)))
    await store.delete_user("joe")
    assert (names(store.rules), dict(store.rules.acls)) == (["root"], {})
    await store.create_user(UserInfo("joe", "geheim"))
    assert dict(store.rules.acls) == {}, "a new user of the name gets no policies of the old one"


async def test_what_cannot_be_changed_is_refused_and_changes_nothing(store: AccessStore):
    await store.create_user(UserInfo("joe", "geheim"))
    before, version = store.path.read_bytes(), store.data_version
    refused = [
        (store.create_user(UserInfo("joe", "x")), "The user is existed: joe; change it by updateUser"),
        (store.create_user(UserInfo("bob", "")), "password of user bob: it is blank"),
        (store.update_user(UserInfo("bob", "x")), "The user is not exist: bob; create it by createUser"),
        (store.update_user(UserInfo("joe", "x\ny")), "control character"),
        (store.delete_user(" "), "username: it is blank"),
        (store.merge_acl(Acl("bob", (allow("*"),))), "The subject of User:bob is not exist"),
        (store.delete_acl("bob", PolicyType.CUSTOM, None), "The subject is not exist: User:bob"),
        (store.delete_acl("joe", PolicyType.CUSTOM, None), "The acl is not exist: User:joe has no policies"),
    ]
    for change, reason in refused:
        with pytest.raises(AuthValueError, match=reason):
            await change
    await store.delete_user("bob")  # no error, as in Apache's broker
    assert (store.path.read_bytes(), store.data_version) == (before, version)


async def test_the_table_is_bounded(store: AccessStore, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(access_store, "MAX_USERS", 2)
    monkeypatch.setattr(access_store, "MAX_ALL_ENTRIES", 2)
    await store.add_missing([User("joe", "x"), User("bob", "x")])
    with pytest.raises(AuthValueError, match="3 users exceed the limit of 2"):
        await store.create_user(UserInfo("eve", "x"))
    await store.merge_acl(Acl("joe", (allow("Topic:A"), allow("Topic:B"))))
    with pytest.raises(AuthValueError, match="3 entries of all users exceed the limit of 2"):
        await store.merge_acl(Acl("bob", (allow("*"),)))
    assert names(store.rules) == ["bob", "joe"]


async def test_missing_users_are_added_and_others_left_as_they_are(store: AccessStore):
    await store.create_user(UserInfo("joe", "mine"))
    given = [User("joe", "other"), User("root", "x", UserType.SUPER)]
    added = await store.add_missing(given, [Acl("joe", (allow("*"),)), Acl("root", (allow("Topic:T"),))])
    assert added == ["root"]
    assert store.rules.users["joe"].secret == "mine"
    assert list(store.rules.acls) == ["root"]
    before = store.data_version
    assert await store.add_missing(given) == []
    assert store.data_version == before


ROOT = UserInfo("root", "root-secret", "Super")
INNER = User("inner", "inner-secret", UserType.SUPER, is_inner=True)


@pytest.mark.parametrize("change", [UserInfo("root", None, "Normal"), UserInfo("root", None, None, "disable"), None])
@pytest.mark.parametrize("others", [[], [INNER], [User("off", "x", UserType.SUPER, UserStatus.DISABLE)]])
async def test_the_last_super_user_stays(store: AccessStore, change: UserInfo | None, others: list[User]):
    async def apply(name: str) -> None:
        if change is None:
            await store.delete_user(name)
        else:
            await store.update_user(UserInfo(name, None, change.user_type, change.user_status))

    await store.create_user(ROOT)
    await store.add_missing(others)
    with pytest.raises(AuthConflictError, match=r"User:root is the last enabled Super user.*mqadmin createUser -u"):
        await apply("root")
    await store.update_user(UserInfo("root", "other-secret"))

    await store.create_user(UserInfo("second", "x", "Super"))
    await apply("root")
    with pytest.raises(AuthConflictError, match="User:second is the last"):
        await apply("second")


async def test_of_two_removals_at_once_one_is_refused(store: AccessStore):
    await store.create_user(ROOT)
    await store.create_user(UserInfo("second", "x", "Super"))
    results = await asyncio.gather(store.delete_user("root"), store.delete_user("second"), return_exceptions=True)
    assert [type(result) for result in results] == [type(None), AuthConflictError]


async def test_a_migration_is_done_once(store: AccessStore):
    shop = User("shop", "shop-secret")
    assert await store.migrate([shop], [Acl("shop", (allow("Topic:T"),))]) == ["shop"]
    await store.delete_user("shop")
    assert store.is_migrated
    assert loaded(store.path).is_migrated
    assert AccessTable.decode((await store.copy(LINK)).encode()).migrated_from_v1


class TestUsersOfSettings:
    async def test_they_are_made_and_raise_no_version(self, store: AccessStore, caplog: pytest.LogCaptureFixture):
        caplog.set_level(logging.INFO)
        first = User("root", "root-secret", UserType.SUPER)
        await store.follow_settings([first], INNER)
        assert dict(store.rules.users) == {"root": first, "inner": INNER}
        assert store.data_version == DataVersion()
        assert "User:inner is created, as the settings say" in caplog.text
        assert dict(loaded(store.path).rules.users) == {"root": first, "inner": INNER}

    async def test_those_that_exist_are_left_as_they_are(self, store: AccessStore):
        await store.create_user(UserInfo("root", "mine", "Normal", "disable"))
        await store.create_user(UserInfo("inner", "mine"))
        before = dict(store.rules.users)
        await store.follow_settings([User("root", "x", UserType.SUPER)], INNER)
        assert dict(store.rules.users) == before

    async def test_other_inner_credentials_replace_the_earlier_user(self, store: AccessStore):
        await store.follow_settings([], INNER)
        await store.merge_acl(Acl("inner", (allow("Topic:T"),)))
        other = User("servers", "other-secret", UserType.SUPER, is_inner=True)
        await store.follow_settings([], other)
        assert (dict(store.rules.users), dict(store.rules.acls)) == ({"servers": other}, {})
        await store.follow_settings([], User("servers", "third-secret", UserType.SUPER, is_inner=True))
        assert store.rules.users["servers"].secret == "third-secret"

    async def test_a_user_made_by_hand_is_not_removed_with_the_setting(self, store: AccessStore):
        await store.create_user(UserInfo("inner", "inner-secret", "Super"))
        await store.follow_settings([], INNER)
        await store.follow_settings([], User("servers", "x", UserType.SUPER, is_inner=True))
        assert names(store.rules) == ["inner", "servers"]

    async def test_one_user_for_both_settings_is_a_first_user(self, store: AccessStore):
        both = User("root", "root-secret", UserType.SUPER)
        await store.follow_settings([both], User("root", "root-secret", UserType.SUPER, is_inner=True))
        assert store.rules.users["root"] == both

    async def test_the_inner_user_stays_while_nobody_else_has_every_right(self, store: AccessStore):
        await store.follow_settings([], INNER)
        await store.follow_settings([], None)
        assert names(store.rules) == ["inner"]
        await store.create_user(ROOT)
        await store.follow_settings([], None)
        assert names(store.rules) == ["root"]

    async def test_the_secret_of_the_inner_user_is_that_of_the_setting(self, store: AccessStore):
        await store.follow_settings([], INNER)
        with pytest.raises(AuthValueError, match="change the setting, the same on all servers, and restart"):
            await store.update_user(UserInfo("inner", "by-hand-secret"))
        await store.create_user(ROOT)
        await store.update_user(UserInfo("inner", None, None, "disable"))
        assert not loaded(store.path).rules.users["inner"].is_enabled


async def test_listeners_get_new_rules_before_the_answer(store: AccessStore):
    seen: list[AccessRules] = []
    store.on_change(seen.append)
    await store.create_user(UserInfo("joe", "x"))
    assert seen == [store.rules]
    assert seen[0].version == 1


async def test_changes_at_once_share_writes(store: AccessStore, disk: RecordingFileSystem):
    await asyncio.gather(*(store.create_user(UserInfo(f"user{number}", "x")) for number in range(200)))
    writes = sum(event.kind == "write" for event in disk.journal)
    assert len(store.rules.users) == 200
    assert 1 <= writes <= 10
    assert len(loaded(store.path).rules.users) == 200


@pytest.mark.proves("Tables", "users and policies: a write that fails")
async def test_a_failed_write_changes_nothing_and_is_answered(
    store: AccessStore, disk: RecordingFileSystem, caplog: pytest.LogCaptureFixture
):
    await store.create_user(UserInfo("joe", "geheim"))
    version = store.data_version

    def fault(operation: str, _path: Path) -> None:
        if operation == "rename":
            raise OSError(28, "No space left on device")

    disk.fault = fault
    results = await asyncio.gather(
        *(store.create_user(UserInfo(f"user{number}", "geheim-x")) for number in range(5)), return_exceptions=True
    )
    assert {str(result) for result in results} == {
        "accessControl.json cannot be written: No space left on device; nothing was changed"
    }
    assert all(type(result) is AuthError for result in results)
    assert names(store.rules) == ["joe"]
    assert store.data_version == version
    assert caplog.text.count("cannot be written") == 1
    assert "geheim" not in caplog.text

    disk.fault = lambda _operation, _path: None
    await store.create_user(UserInfo("bob", "x"))
    assert names(store.rules) == names(loaded(store.path).rules) == ["bob", "joe"]
    assert "is written again" in caplog.text


@pytest.mark.proves("Tables", "users and policies: a write that fails")
async def test_a_failed_write_that_reached_the_disk_is_taken_back(
    store: AccessStore, disk: RecordingFileSystem, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(access_store, "RETRY_S", 0.01)
    await store.create_user(UserInfo("joe", "geheim"))
    failed = threading.Event()

    def fault(operation: str, _path: Path) -> None:
        if operation == "sync_folder" and not failed.is_set():
            failed.set()
            raise OSError(5, "Input/output error")

    disk.fault = fault
    with pytest.raises(AuthError, match="Input/output error; nothing was changed"):
        await store.delete_user("joe")
    assert names(store.rules) == ["joe"]
    await until(lambda: names(loaded(store.path).rules) == ["joe"])


async def test_a_change_is_written_though_an_earlier_state_could_not_be_written_again(
    store: AccessStore, disk: RecordingFileSystem
):
    await store.create_user(UserInfo("joe", "geheim"))
    writes, begun, go_on = itertools.count(), threading.Event(), threading.Event()

    def fault(operation: str, _path: Path) -> None:
        if operation == "rename" and (number := next(writes)) < 2:
            if number == 1:  # the state without the change that failed
                begun.set()
                go_on.wait(LIMIT_S)
            raise OSError(28, "No space left on device")

    disk.fault = fault
    with pytest.raises(AuthError, match="nothing was changed"):
        await store.create_user(UserInfo("bad", "x"))
    await until(begun.is_set)
    change = asyncio.ensure_future(store.create_user(UserInfo("bob", "x")))
    await turns(1)
    go_on.set()
    await change
    assert names(store.rules) == names(loaded(store.path).rules) == ["bob", "joe"]


async def test_a_change_that_finds_its_work_done_waits_for_the_write(store: AccessStore, disk: RecordingFileSystem):
    await store.create_user(UserInfo("joe", "geheim"))

    def fault(_operation: str, _path: Path) -> None:
        raise OSError(28, "No space left on device")

    disk.fault = fault
    results = await asyncio.gather(store.delete_user("joe"), store.delete_user("joe"), return_exceptions=True)
    assert [type(result) for result in results] == [AuthError, AuthError]


@pytest.mark.proves("Tables", "users and policies: answered after the disk")
@pytest.mark.parametrize("loss", Loss)
async def test_a_crash_keeps_what_was_answered(
    store: AccessStore, disk: RecordingFileSystem, tmp_path: Path, loss: Loss
):
    for number in range(4):
        await store.create_user(UserInfo(f"user{number}", "x"))
        disk.mark(number + 1)
    await store.delete_user("user0")
    disk.mark(5)
    states = [{f"user{number}" for number in range(count)} for count in range(5)]
    states.append({"user1", "user2", "user3"})

    for end in range(len(disk.journal) + 1):
        image, root, answered = Disk(), tmp_path / f"image-{end}", 0
        for event in disk.journal[:end]:
            image.apply(event)
            answered = event.mark if isinstance(event.mark, int) else answered
        image.image(root, loss, random.randrange(1_000))
        path = root / "config" / FILE_NAME
        found: set[str] = set()
        if path.exists():
            path.chmod(0o600)
            found = set(loaded(path).rules.users)
        # Everything that was answered, and at most the change that was under way.
        assert found in states[answered : answered + 2]


async def test_a_stop_writes_what_is_pending(disk: RecordingFileSystem, clock: FakeClock):
    store = AccessStore(disk.root / FILE_NAME, SEAL, clock, disk)
    await store.start()
    change = asyncio.create_task(store.create_user(UserInfo("joe", "x")))
    await asyncio.sleep(0)
    await store.stop()
    await change
    assert names(loaded(store.path).rules) == ["joe"]
    with pytest.raises(AuthError, match="is not open for changes"):
        await store.create_user(UserInfo("bob", "x"))


@pytest.mark.proves("Tables", "users and policies: a damaged table")
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda text: b"", "is damaged"),
        (lambda text: text[: len(text) // 2], "is damaged"),
        (lambda text: text.replace(b'"joe"', b'"bob"'), "was changed, or made by another key"),
        (lambda text: text.replace(b"Topic:T", b"Topik:T"), "entry 1: resource 'Topik:T' has no known type"),
        (lambda text: text.replace(b"Normal", b"Root"), "userType of user joe: 'Root' is unknown"),
        (lambda text: text.replace(b'"policies": {\n    "joe"', b'"policies": {\n    "bob"'), "no such user|subject"),
    ],
)
async def test_a_damaged_table_stops_the_start(store: AccessStore, damage, reason: str):
    await store.create_user(UserInfo("joe", "geheim"))
    await store.merge_acl(Acl("joe", (allow("Topic:T"),)))
    store.path.write_bytes(damage(store.path.read_bytes()))
    with pytest.raises(ConfigError, match=reason) as refused:
        loaded(store.path)
    assert "restore it from a backup" in str(refused.value)
    assert "geheim" not in str(refused.value)


async def test_a_table_of_another_key_is_refused_by_its_name(store: AccessStore):
    await store.create_user(UserInfo("joe", "geheim"))
    with pytest.raises(ConfigError, match=f"sealed by the key '{SEAL.key_id}', and the key file has"):
        loaded(store.path, OTHER_SEAL)


async def test_a_table_that_others_can_read_is_refused(store: AccessStore):
    await store.create_user(UserInfo("joe", "geheim"))
    store.path.chmod(0o644)
    with pytest.raises(ConfigError, match="has mode 0644"):
        loaded(store.path)


async def test_a_folder_in_place_of_the_table_is_refused(tmp_path: Path):
    (tmp_path / FILE_NAME).mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="is not a regular file"):
        AccessStore(tmp_path / FILE_NAME, SEAL, FakeClock()).load()


# Copies


@pytest.fixture
async def slave(tmp_path: Path, clock: FakeClock) -> AsyncIterator[AccessStore]:
    held = AccessStore(tmp_path / "slave" / FILE_NAME, OTHER_SEAL, clock)
    await held.start()
    yield held
    await held.stop()


LINK = SecretSeal(b"derived from the credentials that both know")


async def test_a_copy_is_sealed_by_the_keys_of_the_link_and_of_the_slave(store: AccessStore, slave: AccessStore):
    await store.create_user(UserInfo("joe", "geheim"))
    await store.merge_acl(Acl("joe", (allow("Topic:T"),)))
    copy = AccessTable.decode((await store.copy(LINK)).encode())

    assert await slave.take_copy(copy, LINK)
    again = loaded(slave.path, OTHER_SEAL)
    assert dict(again.rules.users) == dict(store.rules.users)
    assert dict(again.rules.acls) == dict(store.rules.acls)
    assert again.data_version == store.data_version
    assert not await slave.take_copy(copy, LINK), "the same version changes nothing"


async def test_an_older_copy_never_replaces_a_newer_table(store: AccessStore, slave: AccessStore, clock: FakeClock):
    await store.create_user(UserInfo("joe", "geheim"))
    old = await store.copy(LINK)
    await slave.take_copy(old, LINK)
    # The master is lost with a change that was not copied; the slave takes over and revokes the user.
    await store.create_user(UserInfo("lost", "x"))
    await store.create_user(UserInfo("lost2", "x"))
    clock.advance(1)
    await slave.delete_user("joe")

    assert not await slave.take_copy(await store.copy(LINK), LINK)
    assert not await slave.take_copy(old, LINK)
    assert names(slave.rules) == []
    assert await store.take_copy(await slave.copy(LINK), LINK)
    assert names(store.rules) == []


@pytest.mark.parametrize(
    "version", [DataVersion(access_store.MAX_AHEAD_MS + 1, 1), DataVersion(1, 1 << 60), DataVersion(1 << 60, 1)]
)
async def test_a_version_of_a_time_to_come_is_refused(
    store: AccessStore, slave: AccessStore, clock: FakeClock, version: DataVersion
):
    await store.create_user(UserInfo("joe", "geheim"))
    await slave.take_copy(await store.copy(LINK), LINK)
    table = await store.copy(LINK)
    table.data_version = DataVersion(clock.time_ms() + version.timestamp, version.counter)
    table.users.clear()
    with pytest.raises(CodecError, match="ahead of the clock here; set the clocks of both servers"):
        await slave.take_copy(table, LINK)
    assert names(slave.rules) == ["joe"]
    clock.advance(1)
    await store.delete_user("joe")
    assert await slave.take_copy(await store.copy(LINK), LINK)
    assert names(slave.rules) == []


async def test_users_of_settings_never_outrank_the_table_of_a_master(store: AccessStore, slave: AccessStore):
    await store.create_user(UserInfo("joe", "geheim"))
    await slave.follow_settings([User("root", "x", UserType.SUPER)], INNER)
    assert not await store.take_copy(await slave.copy(LINK), LINK)
    assert await slave.take_copy(await store.copy(LINK), LINK)


@pytest.mark.parametrize("seed", range(5))
async def test_copies_in_any_order_never_bring_an_older_policy_back(tmp_path: Path, clock: FakeClock, seed: int):
    """Servers restart, change roles and copy from each other at random; a change made anywhere is never undone."""
    dice = random.Random(seed)
    servers = [AccessStore(tmp_path / str(number) / FILE_NAME, SEAL, clock) for number in range(3)]
    for server in servers:
        await server.start()
    changes = 0
    for _ in range(60):
        number = dice.randrange(3)
        server, seen = servers[number], len(servers[number].rules.users)
        match dice.choice(["change", "copy", "copy", "restart"]):
            case "change" if seen == changes:  # at the one that has all changes, as a master does
                clock.advance(dice.choice([0, 0, 1, -1]))
                changes += 1
                await server.create_user(UserInfo(f"user{changes}", "x"))
                seen = changes
            case "copy":
                await server.take_copy(await dice.choice(servers).copy(LINK), LINK)
            case "restart" if server.path.exists():
                await server.stop()
                server = servers[number] = loaded(server.path)
                await server.start()
        assert len(server.rules.users) >= seen
    for server in servers:
        await server.stop()


async def test_the_time_of_a_version_never_goes_back(store: AccessStore, clock: FakeClock):
    await store.create_user(UserInfo("joe", "geheim"))
    first = store.data_version
    clock.advance(-3_600)
    await store.delete_user("joe")
    assert store.data_version == DataVersion(first.timestamp + 1, first.counter + 1)


async def test_a_copy_of_another_key_is_refused_and_changes_nothing(store: AccessStore, slave: AccessStore):
    await store.create_user(UserInfo("joe", "geheim"))
    with pytest.raises(CodecError, match="were sealed by the key"):
        await slave.take_copy(await store.copy(LINK), SEAL)
    assert names(slave.rules) == []
    assert not slave.path.exists()


async def test_no_log_line_has_a_secret(store: AccessStore, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    await store.create_user(UserInfo("joe", "geheim-7"))
    await store.update_user(UserInfo("joe", "geheim-8"))
    assert "geheim" not in caplog.text
