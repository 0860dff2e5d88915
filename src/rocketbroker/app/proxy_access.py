"""Access control of mqproxy in cluster mode: calls are checked by the users and policies of the brokers."""

import logging
from typing import Self

from rocketbroker.app.access_control import check_classes, inner_user
from rocketbroker.auth.access_copy import AccessCopy
from rocketbroker.auth.audit_log import AuditLog
from rocketbroker.auth.request_guard import Checks, RequestGuard
from rocketbroker.auth.request_rights import RequestRights
from rocketbroker.auth.secret_seal import copy_seal
from rocketbroker.auth.users import User
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.auth_settings import parse_users
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.lifecycle import stop_all
from rocketbroker.proxy.call_guard import CallGuard
from rocketbroker.proxy.cluster_service_manager import ClusterServiceManager
from rocketbroker.proxy.cluster_users import ClusterUsers

log = logging.getLogger(__name__)


class ProxyAccess:
    """Users of the brokers, and the check of calls by them; ``of`` makes it.

    Args:
        config: what is checked.
        inner: user of the inner credentials.
        brokers: the brokers.
        clock: source of the time.

    Attributes:
        guard: counts what is refused.
        calls: the check.
        users: follows the users and policies of the brokers.
    """

    def __init__(self, config: ProxyConfig, inner: User, brokers: ClusterServiceManager, clock: Clock) -> None:
        copy, seal = AccessCopy(), copy_seal(inner.name, inner.secret)
        bound = parse_users(config.bound_signature_users)
        checks = Checks(config.authorization_enabled, bound_users=bound)
        self.guard = RequestGuard(copy, RequestRights(config.proxy_cluster_name), clock, checks)
        self.guard.refusals.audit = self._audit = AuditLog("proxy", clock)
        self.users = ClusterUsers(copy, seal, config, brokers.registered, brokers.asked)
        self.calls = CallGuard(self.guard, lambda: self.problem)

    @classmethod
    def of(cls, config: ProxyConfig, brokers: ClusterServiceManager, clock: Clock) -> Self | None:
        """Return the access control of a proxy, ``None`` if it is off.

        Raises:
            ConfigError: A setting is not valid, or missing.
        """
        check_classes(config)
        inner = inner_user(config)
        if config.authentication_enabled:
            if inner is None:
                raise ConfigError(
                    "authenticationEnabled=true needs innerClientAuthenticationCredentials, the same as those of the "
                    "brokers: mqproxy asks them for users and policies, and signs its requests"
                )
            return cls(config, inner, brokers, clock)
        if inner is not None:
            log.warning(
                "innerClientAuthenticationCredentials without authenticationEnabled=true: everyone who reaches the "
                "gRPC port may do there what clients do, as User:%s",
                inner.name,
            )
        return None

    @property
    def problem(self) -> str:
        """Reason why no users are known; empty once they are."""
        return self.users.problem

    async def start(self) -> None:
        """Take the users of the brokers, and follow them."""
        await self._audit.start()
        await self.users.start()

    async def stop(self) -> None:
        """End what waits."""
        await stop_all(self.users.stop, self.guard.refusals.late_answers.stop, self._audit.stop)
