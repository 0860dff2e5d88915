"""Table of users and policies, on disk before a change is answered (LocalAuthenticationMetadataProvider and others).

    accessControl.json := {"dataVersion": ..., "keyId": ..., "migratedFromV1": bool, "policies": {name: AclInfo},
                           "users": {name: StoredUser}}

A change makes a new state from the newest one. The state is written, then published: no decision follows a policy that
a crash could take back. Changes that come during a write share the next one. If a write fails, the states made since
are dropped, their changes are answered with the reason, and what was published stays in force. Since a failed write may
have reached the disk all the same, the published state is then written until that succeeds.

A table has a version, and a copy replaces the own table only if its version is higher. Versions are compared by the
time of the last change, which never goes back within a table, then by the number of changes. So a slave never takes an
older table than it has, in whatever order servers start. Nor does it take one of a time to come, which no later change
could replace for long. A master asks nobody: one that lost its last change serves the older table until the next
change. A change that no slave had copied when its master was lost is lost, as in any other table.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import msgspec

from rocketbroker.auth.authorization import AccessRules
from rocketbroker.auth.errors import AuthConflictError, AuthError, AuthValueError
from rocketbroker.auth.policies import Acl, PolicyType, Resource, parse_acl
from rocketbroker.auth.secret_seal import SecretSeal
from rocketbroker.auth.users import User, check_name, new_user, updated_user
from rocketbroker.codec.remoting.bodies.auth import AclInfo, UserInfo
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, RemotingSerializable
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import CodecError, ConfigError
from rocketbroker.common.file_system import LOCAL, FileSystem
from rocketbroker.common.lifecycle import TaskOwner, stop_all
from rocketbroker.common.private_files import check_private, write_private

log = logging.getLogger(__name__)

FILE_NAME: Final = "accessControl.json"
#: Seconds before the published state is written again after a failed write.
RETRY_S: Final = 5.0
MAX_USERS: Final = 10_000
#: Time by which the version of a copy may be ahead of the own clock.
MAX_AHEAD_MS: Final = 10 * 60_000
_MAX_COUNTER: Final = 1 << 53
#: Entries of all users.
MAX_ALL_ENTRIES: Final = 100_000


class StoredUser(RemotingSerializable):
    """User in the table; ``secret`` is sealed. ``inner`` as ``User.is_inner``."""

    secret: str
    user_type: str
    user_status: str
    inner: bool = False

    def __repr__(self) -> str:
        """Hide even the sealed secret."""
        return f"StoredUser({self.user_type!r}, {self.user_status!r})"


class AccessTable(RemotingSerializable):
    """Content of the file, and of a copy for a slave. ``migrated_from_v1``: files of access control 1.0 were read."""

    key_id: str
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    users: dict[str, StoredUser] = msgspec.field(default_factory=dict)
    policies: dict[str, AclInfo] = msgspec.field(default_factory=dict)
    migrated_from_v1: bool = False


class _State(NamedTuple):
    users: Mapping[str, User]
    acls: Mapping[str, Acl]
    version: DataVersion
    is_migrated: bool = False

    def with_user(self, user: User) -> "_State":
        return self._replace(users={**self.users, user.name: user})

    def with_acl(self, acl: Acl) -> "_State":
        if len(acl):
            return self._replace(acls={**self.acls, acl.username: acl})
        return self._replace(acls={name: held for name, held in self.acls.items() if name != acl.username})

    def without_user(self, name: str) -> "_State":
        users = {other: user for other, user in self.users.items() if other != name}
        return self._replace(users=users).with_acl(Acl(name))

    def with_missing(self, users: Iterable[User], acls: Mapping[str, Acl]) -> "_State":
        """Return the state with the users that are not there, and their policies."""
        state = self
        for user in users:
            if user.name not in state.users:
                state = state.with_user(user).with_acl(acls.get(user.name, Acl(user.name)))
        return state

    def has_super(self, *, but_inner: bool) -> bool:
        """Return true with a Super user that is enabled, other than that of the servers with ``but_inner``."""
        return any(
            user.is_super and user.is_enabled and not (but_inner and user.is_inner) for user in self.users.values()
        )


_Edit: TypeAlias = Callable[[_State], _State]
_Written: TypeAlias = asyncio.Future[str]


class AccessStore:
    """Users and policies of a server. All methods but ``load`` run on the event loop.

    Args:
        path: the file; its folder is created by the first write.
        seal: seals the secrets in it.
        clock: source of the times of versions.
        file_system: the disk.
        option: option by which mqadmin reaches the table, for remarks.
    """

    def __init__(
        self,
        path: Path,
        seal: SecretSeal,
        clock: Clock,
        file_system: FileSystem = LOCAL,
        option: str = "",
    ) -> None:
        self.path = path
        self._seal = seal
        self._clock = clock
        self._file_system = file_system
        #: Users and policies in force.
        self.rules = AccessRules(option=option)
        self._published = self._newest = _State({}, {}, DataVersion())
        self._listeners: list[Callable[[AccessRules], None]] = []
        # Results of the write under way and of the next one, if any: the reason of a failure, else "".
        self._writing: _Written | None = None
        self._pending: _Written | None = None
        # True after a failed write, which may have left a state on disk that was never published.
        self._is_unsure = False
        self._wake = asyncio.Event()
        self._tasks = TaskOwner("AccessStore")
        self._executor: ThreadPoolExecutor | None = None

    def load(self) -> bool:
        """Read the file (blocks); return false if there is none.

        Raises:
            ConfigError: It cannot be read, is damaged, readable by others, or sealed by another key. A server must not
                start then: without the table, nobody or everybody would have access.
        """
        try:
            check_private(self.path)
            data = self.path.read_bytes()
        except FileNotFoundError:
            return False
        except OSError as error:
            raise ConfigError(f"{self.path} cannot be read: {error.strerror}") from error
        try:
            state = state_of(AccessTable.decode(data), self._seal)
        except (CodecError, AuthValueError) as error:
            raise ConfigError(
                f"{self.path} is damaged: {error}; restore it from a backup, or remove it and create users again"
            ) from error
        self._published = self._newest = state
        self.rules = AccessRules(state.users, state.acls, self.rules)
        return True

    def on_change(self, listener: Callable[[AccessRules], None]) -> None:
        """Call ``listener`` with new rules once they are on disk, before the change is answered."""
        self._listeners.append(listener)

    @property
    def data_version(self) -> DataVersion:
        """Version of the table in force."""
        return self._published.version.copy()

    async def start(self) -> None:
        self._executor = ThreadPoolExecutor(1, "AccessStore")
        self._tasks.forever(self._run, "run")

    async def stop(self) -> None:
        """Write what is pending, then end the thread."""
        await stop_all(self._drain, self._tasks.stop, self._end)

    async def _drain(self) -> None:
        while self._executor is not None and (waiting := self._pending or self._writing) is not None:
            await asyncio.wait([waiting])

    def _end(self) -> None:
        if self._executor is not None:
            self._executor.shutdown()
            self._executor = None
        for waiting in (self._writing, self._pending):
            _settle(waiting, f"{self.path.name} could not be written before the server stopped")
        self._writing = self._pending = None

    # Requests

    async def create_user(self, info: UserInfo) -> None:
        """Add a user.

        Raises:
            AuthValueError: A field is not valid, there is such a user, or there are too many.
            AuthError: The table cannot be written.
        """
        user = new_user(info)

        def edit(state: _State) -> _State:
            if user.name in state.users:
                raise AuthConflictError(f"The user is existed: {user.name}; change it by updateUser")
            return state.with_user(user)

        await self._change(edit)

    async def update_user(self, info: UserInfo, *, by_super: bool = True) -> None:
        """Change the fields of a user that ``info`` has.

        Args:
            info: the fields.
            by_super: a Super user asks; others cannot change a Super user.

        Raises:
            AuthValueError: A field is not valid, or there is no such user, or it is a Super user, or the last one.
            AuthError: The table cannot be written.
        """
        name = check_name(info.username)

        def edit(state: _State) -> _State:
            if name not in state.users:
                raise AuthConflictError(f"The user is not exist: {name}; create it by createUser")
            _check_super(state, name, by_super=by_super)
            return _with_super_left(state, state.with_user(updated_user(state.users[name], info)), name)

        await self._change(edit)

    async def delete_user(self, name: str | None, *, by_super: bool = True) -> None:
        """Remove a user and its policies; an unknown one is no error, as in Apache's broker.

        Args:
            name: its name.
            by_super: a Super user asks; others cannot remove a Super user.

        Raises:
            AuthValueError: The name is not valid, or that of a Super user, or of the last one.
            AuthError: The table cannot be written.
        """
        name = check_name(name)

        def edit(state: _State) -> _State:
            if name not in state.users and name not in state.acls:
                return state
            _check_super(state, name, by_super=by_super)
            return _with_super_left(state, state.without_user(name), name)

        await self._change(edit)

    async def merge_acl(self, acl: Acl) -> None:
        """Add policies of a user; an entry replaces the one for the same resource (codes 3006 and 3007).

        Raises:
            AuthValueError: There is no such user, or there are too many entries.
            AuthError: The table cannot be written.
        """

        def edit(state: _State) -> _State:
            if acl.username not in state.users:
                raise AuthConflictError(f"The subject of {acl.subject} is not exist; create the user by createUser")
            return state.with_acl(state.acls.get(acl.username, Acl(acl.username)).merged(acl))

        await self._change(edit)

    async def delete_acl(self, name: str, kind: PolicyType, resource: Resource | None) -> None:
        """Remove one entry of a user, or all its policies if ``resource`` is ``None``.

        Raises:
            AuthValueError: There is no such user, or it has no policies.
            AuthError: The table cannot be written.
        """

        def edit(state: _State) -> _State:
            if name not in state.users:
                raise AuthConflictError(f"The subject is not exist: User:{name}")
            if name not in state.acls:
                raise AuthConflictError(f"The acl is not exist: User:{name} has no policies")
            return state.with_acl(Acl(name) if resource is None else state.acls[name].without(kind, resource))

        await self._change(edit)

    async def add_missing(self, users: Iterable[User], acls: Iterable[Acl] = ()) -> list[str]:
        """Add users that are not there, with their policies; return their names. Others are left as they are.

        Raises:
            AuthError: The table cannot be written.
        """
        return await self._add(list(users), acls)

    async def migrate(self, users: Iterable[User], acls: Iterable[Acl]) -> list[str]:
        """Add the users of access control 1.0, as ``add_missing`` does, and note that this is done for good.

        So users that are deleted later do not return, and changes of the files do not count any more.

        Raises:
            AuthError: The table cannot be written.
        """
        return await self._add(list(users), acls, is_migrated=True)

    @property
    def is_migrated(self) -> bool:
        """True once the users of access control 1.0 were added."""
        return self._newest.is_migrated

    async def _add(self, users: list[User], acls: Iterable[Acl], *, is_migrated: bool = False) -> list[str]:
        policies = {acl.username: acl for acl in acls}
        added: list[str] = []

        def edit(state: _State) -> _State:
            added[:] = [user.name for user in users if user.name not in state.users]
            if is_migrated and not state.is_migrated:
                state = state._replace(is_migrated=True)
            return state.with_missing(users, policies)

        await self._change(edit)
        return added

    async def follow_settings(self, first: Iterable[User], inner: User | None) -> None:
        """Add the users that settings name, unless they exist, and remove an earlier user of the inner credentials.

        The version stays: each server does this by itself, and the table of a slave that has nothing else must be older
        than its master's.

        Args:
            first: those of ``initAuthenticationUser``.
            inner: that of ``innerClientAuthenticationCredentials``; if earlier settings made it, it gets the secret of
                the present ones.

        Raises:
            AuthError: The table cannot be written.
        """
        given = [*first, *([] if inner is None else [inner])]
        changes: list[str] = []

        def edit(state: _State) -> _State:
            after = state
            for user in state.users.values():
                if user.is_inner and (inner is None or user.name != inner.name):
                    after = after.without_user(user.name)
            held = None if inner is None else after.users.get(inner.name)
            if inner is not None and held is not None and held.is_inner and held.secret != inner.secret:
                after = after.with_user(msgspec.structs.replace(held, secret=inner.secret))
            after = after.with_missing(given, {})
            if not after.has_super(but_inner=False):
                # Without inner credentials, and without another user with every right: the earlier one stays.
                after = state.with_missing(given, {})
            removed, added = state.users.keys() - after.users.keys(), after.users.keys() - state.users.keys()
            changes[:] = [f"User:{name} is removed, as no setting names it" for name in sorted(removed)]
            changes.extend(f"User:{name} is created, as the settings say" for name in sorted(added))
            return state if after.users == state.users else after

        await self._change(edit, raises_version=False)
        for change in changes:
            log.info("access control: %s", change)

    # Copies

    async def copy(self, seal: SecretSeal) -> AccessTable:
        """Return the table in force for another server, with its secrets sealed by ``seal``."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, _table_of, self._published, seal)

    async def take_copy(self, table: AccessTable, seal: SecretSeal) -> bool:
        """Replace the table by another server's if that is newer; return false if it is not.

        Args:
            table: what ``copy`` of the other server returned.
            seal: the seal of the copy.

        Raises:
            CodecError: A secret was sealed by another key, an entry is not valid, or the version is of a time to come.
            AuthError: The table cannot be written.
        """
        # Checked before the secrets are opened, which costs more.
        if not _is_newer(table.data_version, self._newest.version):
            return False
        self._check_time(table.data_version)
        copied = await asyncio.get_running_loop().run_in_executor(self._executor, state_of, table, seal)
        taken = False

        def edit(state: _State) -> _State:
            nonlocal taken
            taken = _is_newer(copied.version, state.version)
            return copied if taken else state

        await self._change(edit, raises_version=False)
        return taken

    def _check_time(self, version: DataVersion) -> None:
        """Check that later changes can get a higher version.

        Raises:
            CodecError: They cannot, for long.
        """
        ahead_ms = version.timestamp - self._clock.time_ms()
        if ahead_ms > MAX_AHEAD_MS or version.counter > _MAX_COUNTER:
            raise CodecError(
                f"its version (timestamp {version.timestamp}, counter {version.counter}) is {ahead_ms / 1000:,.0f} s "
                "ahead of the clock here; set the clocks of both servers. If they are right, stop the master and lower "
                f"dataVersion in its {self.path.name}"
            )

    # Writes

    async def _change(self, edit: _Edit, *, raises_version: bool = True) -> None:
        """Make a new state and wait until it is published.

        Raises:
            AuthError: ``edit`` rejects the change, or the write failed.
        """
        if self._executor is None:
            raise AuthError("the table of users is not open for changes; try again")
        before = self._newest
        state = edit(before)
        if state is not before:
            _check_size(state)
            if raises_version:
                version = before.version.copy()
                version.next_version(max(self._clock.time_ms(), version.timestamp + 1))
                state = state._replace(version=version)
            self._newest = state
            if self._pending is None:
                self._pending = asyncio.get_running_loop().create_future()
            self._wake.set()
        # Even a change that finds its work done waits for the write of the one that did it.
        waiting = self._pending or self._writing
        if waiting is not None and (reason := await asyncio.shield(waiting)):
            raise AuthError(reason)

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if self._is_unsure else None):
                    await self._wake.wait()
            self._wake.clear()
            while self._newest is not self._published:
                await self._write_newest()
            if self._is_unsure:
                await self._write_newest()

    async def _write_newest(self) -> None:
        state, self._writing, self._pending = self._newest, self._pending, None
        loop = asyncio.get_running_loop()
        try:
            rules = await loop.run_in_executor(self._executor, self._write, state)
        except Exception as error:
            cause = error.strerror if isinstance(error, OSError) else repr(error)
            if not self._is_unsure:
                unforeseen = None if isinstance(error, OSError) else error
                log.error(  # noqa: TRY400 - a full disk needs no traceback
                    "%s cannot be written: %s; changes are rejected", self.path, cause, exc_info=unforeseen
                )
            self._is_unsure = True
            if state is self._published:
                return  # no change has failed: those made meanwhile are written next
            # States made meanwhile contain the change that failed.
            self._newest = self._published
            for waiting in (self._writing, self._pending):
                _settle(waiting, f"{self.path.name} cannot be written: {cause}; nothing was changed")
            self._writing = self._pending = None
            return
        if self._is_unsure:
            log.warning("%s is written again", self.path)
        self._is_unsure = False
        try:
            if state is not self._published:
                self._published, self.rules = state, rules
                for listener in self._listeners:
                    listener(rules)
        finally:
            _settle(self._writing, "")
            self._writing = None

    def _write(self, state: _State) -> AccessRules:
        """Write a state on the thread; return its rules, which are made there as well."""
        write_private(self.path, _encoded(_table_of(state, self._seal)), self._file_system)
        return AccessRules(state.users, state.acls, self.rules)


def _settle(waiting: _Written | None, reason: str) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(reason)


def _check_super(state: _State, name: str, *, by_super: bool) -> None:
    # In the newest state: a user may become a Super user while a change waits for the disk.
    user = state.users.get(name)
    if user is not None and user.is_super and not by_super:
        raise AuthConflictError(f"The super user can only be update by super user: User:{name}")


def _with_super_left(before: _State, after: _State, name: str) -> _State:
    """Return the state after a change of a user, unless nobody could change users any more.

    The user by which servers sign does not count while there is another one: its secret is for servers.

    Raises:
        AuthConflictError: ``name`` was the last Super user.
    """
    for but_inner in (True, False):
        if before.has_super(but_inner=but_inner) and not after.has_super(but_inner=but_inner):
            raise AuthConflictError(
                f"User:{name} is the last enabled Super user, and without one nobody could change users; create "
                "another one first: mqadmin createUser -u <name> -t Super"
            )
    return after


def _check_size(state: _State) -> None:
    if len(state.users) > MAX_USERS:
        raise AuthValueError(f"{len(state.users):,} users exceed the limit of {MAX_USERS:,}; delete some")
    entries = sum(map(len, state.acls.values()))
    if entries > MAX_ALL_ENTRIES:
        raise AuthValueError(
            f"{entries:,} entries of all users exceed the limit of {MAX_ALL_ENTRIES:,}; replace some by prefixes"
        )


def _is_newer(one: DataVersion, other: DataVersion) -> bool:
    return (one.timestamp, one.counter) > (other.timestamp, other.counter)


def _encoded(table: AccessTable) -> bytes:
    # Fields in order, so that two tables can be compared; written by C, as a table may have 100,000 entries.
    return msgspec.json.format(msgspec.json.encode(table, order="sorted"), indent=2)


def _table_of(state: _State, seal: SecretSeal) -> AccessTable:
    return AccessTable(
        seal.key_id,
        state.version.copy(),
        {
            name: StoredUser(seal.seal(name, user.secret), user.type.word, user.status.word, user.is_inner)
            for name, user in state.users.items()
        },
        {name: acl.info() for name, acl in state.acls.items()},
        state.is_migrated,
    )


def state_of(table: AccessTable, seal: SecretSeal) -> _State:
    """Return the users and policies of a table.

    Raises:
        CodecError: It was sealed by another key, or an entry is not valid.
    """
    if table.users and table.key_id != seal.key_id:
        raise CodecError(
            f"its secrets were sealed by the key {table.key_id[:16]!r}, and the key file has {seal.key_id!r}; use the "
            "key file that belongs to it"
        )
    try:
        users = {
            name: msgspec.structs.replace(
                new_user(UserInfo(name, seal.open(name, user.secret), user.user_type, user.user_status)),
                is_inner=user.inner,
            )
            for name, user in table.users.items()
        }
        acls = {name: parse_acl(f"User:{name}", info) for name, info in table.policies.items()}
        for name in acls:
            if name not in users:
                raise CodecError(f"policies of User:{name}: there is no such user")
        state = _State(users, acls, table.data_version.copy(), table.migrated_from_v1)
        _check_size(state)
    except AuthValueError as error:
        raise CodecError(str(error)) from error
    return state
