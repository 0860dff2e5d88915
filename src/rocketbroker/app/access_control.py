"""Access control of a server: the table of users and policies, the guard of its routes, and its own signature."""

import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path
from shlex import quote
from typing import Final, Self

from rocketbroker.auth.access_store import FILE_NAME, AccessStore, AccessTable
from rocketbroker.auth.audit_log import AuditLog
from rocketbroker.auth.errors import AuthError, AuthValueError
from rocketbroker.auth.plain_acl import plain_acl_files, read_plain_acl
from rocketbroker.auth.request_guard import Checks, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.auth.secret_seal import NONCE_LENGTH, copy_seal, load_seal, shared_key
from rocketbroker.auth.table_lock import TableLock
from rocketbroker.auth.users import User, check_new_secret, initial_user, inner_client_user
from rocketbroker.codec.ha_frames import BrokerIdentity
from rocketbroker.codec.remoting.bound_signature import binder
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_signature import RequestSigner
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.auth_settings import AuthSettings, AuthSwitches, parse_codes, parse_users
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.errors import CodecError, ConfigError, shown
from rocketbroker.ha.ha_handshake import HAAccess, HandshakeError, WrongProofError

log = logging.getLogger(__name__)

KEY_FILE: Final = "accessControl.key"

_PACKAGE: Final = "org.apache.rocketmq.auth"
_PROXY: Final = "org.apache.rocketmq.proxy.auth"


def check_classes(config: AuthSwitches) -> None:
    """Check the names of RocketMQ's classes, whose work is done here.

    Raises:
        ConfigError: One is a class of somebody else, which this server does not load.
    """
    who, may = f"{_PACKAGE}.authentication", f"{_PACKAGE}.authorization"
    providers = ("DefaultAuthenticationProvider", "LocalAuthenticationMetadataProvider")
    rights = ("DefaultAuthorizationProvider", "LocalAuthorizationMetadataProvider")
    strategies = [
        (f"{package}.strategy.{kind}{word}Strategy")
        for package, word in ((who, "Authentication"), (may, "Authorization"))
        for kind in ("Stateless", "Stateful")
    ]
    users = [f"{who}.provider.{providers[1]}", f"{_PROXY}.ProxyAuthenticationMetadataProvider"]
    policies = [f"{may}.provider.{rights[1]}", f"{_PROXY}.ProxyAuthorizationMetadataProvider"]
    for name, given, known in (
        ("authenticationProvider", config.authentication_provider, [f"{who}.provider.{providers[0]}"]),
        ("authenticationMetadataProvider", config.authentication_metadata_provider, users),
        ("authenticationStrategy", config.authentication_strategy, strategies[:2]),
        ("authorizationProvider", config.authorization_provider, [f"{may}.provider.{rights[0]}"]),
        ("authorizationMetadataProvider", config.authorization_metadata_provider, policies),
        ("authorizationStrategy", config.authorization_strategy, strategies[2:]),
    ):
        if given and given not in known:
            raise ConfigError(
                f"{name}={shown(given)} is rejected: this server loads no classes, and its own does the work of "
                f"{' and '.join(known)}; write that, or leave the setting out"
            )


def inner_user(config: AuthSwitches) -> User | None:
    """Return the user by which a server signs its own requests, ``None`` if the settings name none.

    Raises:
        ConfigError: The setting is not valid.
    """
    text = config.inner_client_authentication_credentials
    try:
        return inner_client_user(text) if text else None
    except AuthValueError as error:
        raise ConfigError(str(error)) from None


def own_signer(config: AuthSwitches) -> RequestSigner | None:
    """Return the signer of a server's own requests, also of one that checks none itself.

    Each server calls this once, so a warning of a short secret stands in its log once.

    Raises:
        ConfigError: The setting is not valid.
    """
    user = inner_user(config)
    if user is None:
        return None
    _warn_of_short_secret("innerClientAuthenticationCredentials", user)
    return RequestSigner(user.name, user.secret)


def _warn_of_short_secret(setting: str, user: User) -> None:
    """Warn of a secret that requests could not give a user; clusters of RocketMQ may have one, so it is accepted."""
    try:
        check_new_secret(user.name, user.secret)
    except AuthValueError as error:
        log.warning("access control: %s: %s", setting, error)


def own_binder(config: AuthSwitches) -> Callable[[str], Callable[[Command], None]] | None:
    """Return what binds a server's own signatures to their connections, ``None`` if they are not bound.

    Raises:
        ConfigError: The setting is not valid.
    """
    user, bound = inner_user(config), parse_users(config.bound_signature_users)
    return binder(user.name, user.secret) if user is not None and not bound.isdisjoint((user.name, "*")) else None


class AccessControl:
    """Access control of one server, started before it listens; ``of`` makes it.

    Args:
        config: what is checked.
        cluster: name of the cluster whose rights requests of administration need.
        folder: folder of the table, unless ``authConfigPath`` names one.
        clock: source of the time.
        open_codes: codes that are not checked at all.
        is_slave: the table follows a master's.
        option: option by which mqadmin reaches the table; by default that of the cluster.

    Attributes:
        store: the table.
        guard: check of requests.
        copy_seal: seals secrets in copies for slaves; ``None`` without inner credentials.

    Raises:
        ConfigError: A setting is not valid, or the key of the table cannot be read.
    """

    def __init__(
        self,
        config: AuthSettings,
        cluster: str,
        folder: Path,
        clock: Clock,
        open_codes: Collection[int] = frozenset(),
        *,
        is_slave: bool = False,
        option: str = "",
    ) -> None:
        check_classes(config)
        self._config = config
        self._is_slave = is_slave
        self._given = self._users_of(config)
        self._inner = inner = inner_user(config)
        self.copy_seal = None if inner is None else copy_seal(inner.name, inner.secret)
        folder = Path(config.auth_config_path) if config.auth_config_path else folder
        table = folder / FILE_NAME
        self._lock = TableLock(folder)
        # Two servers that start at once must not both make a key.
        self._lock.acquire()
        try:
            seal = load_seal(folder / KEY_FILE, may_create=not table.exists())
        finally:
            self._lock.release()
        self.store = AccessStore(table, seal, clock, option=option or f"-c {quote(cluster)}")
        as_apache = config.authorization_open_as_apache
        self.guard = RequestGuard(
            self.store,
            RequestRights(cluster, as_apache=as_apache),
            clock,
            Checks(
                config.authorization_enabled,
                parse_codes(config.authentication_whitelist),
                parse_codes(config.authorization_whitelist),
                open_codes,
                lifts_protected_mode=not as_apache,
                bound_users=parse_users(config.bound_signature_users),
            ),
        )

    @classmethod
    def of(
        cls,
        config: AuthSettings,
        cluster: str,
        folder: Path,
        clock: Clock,
        open_codes: Collection[int] = frozenset(),
        *,
        is_slave: bool = False,
        option: str = "",
    ) -> Self | None:
        """Return the access control of a server, ``None`` if it is off."""
        if not config.authentication_enabled:
            return None
        return cls(config, cluster, folder, clock, open_codes, is_slave=is_slave, option=option)

    @classmethod
    def of_broker(cls, settings: BrokerSettings, clock: Clock, audit: AuditLog) -> Self | None:
        """Return the access control of a broker, ``None`` if it is off; ``audit`` takes what it refuses."""
        config = settings.store
        made = cls.of(
            settings.transport,
            settings.broker.broker_cluster_name,
            config.config_dir,
            clock,
            is_slave=config.broker_role == "SLAVE",
        )
        if made is not None:
            made.guard.refusals.audit = audit
        return made

    @staticmethod
    def _users_of(config: AuthSettings) -> list[User]:
        first = config.init_authentication_user
        if not first:
            return []
        try:
            user = initial_user(first)
        except AuthValueError as error:
            raise ConfigError(str(error)) from None
        _warn_of_short_secret("initAuthenticationUser", user)
        return [user]

    def load(self) -> None:
        """Lock and read the table (blocks); ``release`` ends the lock, also after a failed start.

        Raises:
            ConfigError: It cannot be read, or another server uses it.
        """
        self._lock.acquire()
        self.store.load()
        self.guard.follow_loaded()

    async def start(self) -> None:
        """Create the users that the settings name.

        Raises:
            ConfigError: There is no user at all, or the table cannot be written.
        """
        await self.store.start()
        try:
            await self.store.follow_settings(self._given, self._inner)
            if self._config.migrate_auth_from_v1_enabled:
                await self._migrate()
        except AuthError as error:
            raise ConfigError(str(error)) from None
        users = self.store.rules.users
        if not users:
            raise ConfigError(
                "authenticationEnabled=true, and there is no user: name the first one by initAuthenticationUser="
                '{"username":"...","password":"..."}'
            )
        inner = self._inner
        if inner is None:
            log.info("access control: innerClientAuthenticationCredentials is empty; own requests are not signed")
            return
        held = users[inner.name]
        if held.secret != inner.secret:
            log.warning(
                "access control: User:%s has another secret than innerClientAuthenticationCredentials; servers that "
                "sign by the setting are rejected here until mqadmin updateUser gives the user its secret",
                inner.name,
            )
        if not (held.is_super and held.is_enabled):
            log.warning(
                "access control: User:%s of innerClientAuthenticationCredentials is %s and %s; servers that sign by it "
                "are rejected here until mqadmin updateUser makes it Super and enable",
                inner.name,
                held.type.word,
                held.status.word,
            )

    async def _migrate(self) -> None:
        """Add the users of access control 1.0 that do not exist, with their policies, once in the life of the table."""
        name = "migrateAuthFromV1Enabled=true"
        if self._is_slave:
            log.info("%s: this slave gets the users and policies of its master", name)
            return
        if self.store.is_migrated:
            log.info("%s: done before, and the files are not read again; set it to false", name)
            return
        home = os.environ.get("ROCKETMQ_HOME", "")
        if not home:
            log.warning("%s: ROCKETMQ_HOME is not set, so there is no plain_acl.yml to read", name)
            return
        conf = Path(home) / "conf"
        files = plain_acl_files(conf)
        if not files:
            log.warning("%s: there is no plain_acl.yml in %s", name, conf)
            return
        found = read_plain_acl(files)
        for remark in found.remarks:
            log.warning("access control: %s", remark)
        added = await self.store.migrate(found.users, found.acls)
        log.info("access control: %d of %d users of plain_acl.yml are new", len(added), len(found.users))

    async def follow(self, fetch: Callable[[str, str], Awaitable[tuple[bytes, str]]]) -> None:
        """Replace the table by a master's, if that is newer; do nothing without inner credentials.

        The MAC covers the whole table and a nonce, so that nobody on the path can change users or policies, or send an
        older answer again.

        Args:
            fetch: returns the master's copy and its MAC, by the id of the key that seals its secrets and the nonce.

        Raises:
            CodecError: It is no copy for this server, was changed, or the table cannot be written.
            RemotingError: The master does not answer.
        """
        seal = self.copy_seal
        if seal is None:
            return
        nonce = secrets.token_hex(NONCE_LENGTH)
        body, tag = await fetch(seal.key_id, nonce)
        seal.check_copy(nonce, body, tag)
        try:
            taken = await self.store.take_copy(AccessTable.decode(body), seal)
        except AuthError as error:
            raise CodecError(str(error)) from None
        if taken:
            log.info("access control: %d users of the master are taken over", len(self.store.rules.users))

    async def stop(self) -> None:
        """Write what is pending, and drop refusals that wait."""
        self.guard.refusals.late_answers.stop()
        await self.store.stop()

    def release(self) -> None:
        """Let other servers use the table: the last step of a stop, also after a start that failed."""
        self._lock.release()


def ha_access(settings: BrokerSettings, access: AccessControl | None) -> HAAccess:
    """Return the proofs that a broker can give and demands on replication links.

    Args:
        settings: names of the broker, and the inner credentials.
        access: notes slaves that are refused, if access control is on.

    Raises:
        ConfigError: The inner credentials are not valid.
    """
    broker = settings.broker
    own = BrokerIdentity(broker.broker_cluster_name, broker.broker_name, broker.broker_id)
    inner = inner_user(settings.transport)
    key = None if inner is None else shared_key(inner.name, inner.secret, "HA link")
    if access is None:
        return HAAccess(own, key)

    def refused(address: str, error: HandshakeError) -> None:
        access.guard.refusals.add_slave(str(error), address, is_attempt=isinstance(error, WrongProofError))

    return HAAccess(own, key, is_required=True, refused=refused)
