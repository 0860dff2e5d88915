"""Health of a broker: conditions with their reasons, for /healthz and /readyz."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from rocketbroker.common.config import BrokerConfig, MessageStoreConfig
from rocketbroker.ha.ha_client import HAClient
from rocketbroker.ha.ha_service import HAService
from rocketbroker.store.commitlog.put_message import Refusal, StandingRefusals


class Condition(NamedTuple):
    """One thing that must hold; ``reason`` says why it does not, or what was found."""

    name: str
    ok: bool
    reason: str


class Health(Protocol):
    """Conditions of a server."""

    def alive(self) -> Sequence[Condition]:
        """Return the conditions without which only a restart helps."""

    def ready(self) -> Sequence[Condition]:
        """Return the conditions under which it serves."""


def not_ready(health: Health) -> str:
    """Return the conditions that do not hold, each with its reason; empty for a server that is ready."""
    return "; ".join(f"{each.name}: {each.reason}" for each in health.ready() if not each.ok)


class NameServers(Protocol):
    """The name servers of a broker."""

    def name_servers(self) -> Sequence[str]:
        """Return their addresses."""

    def registered_at(self) -> Sequence[str]:
        """Return those where the broker is registered."""


class BrokerHealth:
    """Conditions of a broker.

    Args:
        broker_config: what it registers at.
        config: the role, and the number of replicas that acknowledge a message.
        refusals: standing reasons to reject messages.
        name_servers: where the broker is registered.
        service: the slaves of a master.
        client: the master of a slave.
        is_serving: returns true once all parts have started, until they stop.
    """

    def __init__(
        self,
        broker_config: BrokerConfig,
        config: MessageStoreConfig,
        refusals: StandingRefusals,
        name_servers: NameServers,
        service: HAService,
        client: HAClient,
        is_serving: Callable[[], bool],
    ) -> None:
        self._broker_config = broker_config
        self._config = config
        self._refusals = refusals
        self._name_servers = name_servers
        self._service = service
        self._client = client
        self._is_serving = is_serving

    def alive(self) -> list[Condition]:
        """Return the conditions without which only a restart helps: this answer shows that the event loop turns."""
        return [Condition("eventLoop", True, "it answers")]

    def ready(self) -> list[Condition]:
        """Return the conditions under which the broker serves."""
        return [self._store(), self._disk(), self._registered(), self._replicas()]

    def _store(self) -> Condition:
        reasons = [Refusal.SHUTTING_DOWN, Refusal.NOT_STARTED, Refusal.READ_ONLY, Refusal.NOT_DISPATCHED]
        reason = next(filter(None, map(self._refusals.reason, reasons)), "")
        if not reason and not self._is_serving():
            reason = "the broker is starting or stopping"
        return Condition("store", not reason, reason or "open")

    def _disk(self) -> Condition:
        reason = self._refusals.reason(Refusal.DISK_FULL)
        return Condition("disk", not reason, reason or "below the watermark")

    def _registered(self) -> Condition:
        config, registered = self._broker_config, self._name_servers.registered_at()
        wanted = self._name_servers.name_servers() or list(filter(None, config.namesrv_addr.split(";")))
        if not wanted and not config.fetch_namesrv_addr_by_address_server:
            return Condition("registered", True, "no name server is configured")
        if registered:
            return Condition("registered", True, "at " + ", ".join(registered))
        where = ", ".join(wanted) or "the name servers, which the address server has not named yet"
        return Condition("registered", False, f"at none of {where}; the log says why")

    def _replicas(self) -> Condition:
        config = self._config
        if config.broker_role == "SLAVE":
            return Condition("replica", not self._client.problem, self._client.problem or "follows its master")
        if config.broker_role != "SYNC_MASTER" or not config.most_needed_slaves:
            return Condition("replica", True, "none is demanded")
        needed, found = config.least_needed_slaves, self._service.in_sync_slaves
        name = "minInSyncReplicas" if config.enable_auto_in_sync_replicas else "inSyncReplicas"
        reason = f"slaves in sync: {found}; messages wait for {needed} ({name})"
        return Condition("replica", found >= needed, reason)
