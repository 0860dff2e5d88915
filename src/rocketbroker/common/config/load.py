"""Settings of a process from `-n`, file, environment and defaults, in RocketMQ's order of precedence.

The counterpart of BrokerStartup.configFileToConfigContext and NamesrvStartup.parseCommandlineAndConfigFile.
"""

import os
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from rocketbroker.common.config import known_properties, unserved
from rocketbroker.common.config.auth_settings import check_auth
from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.fields import PORT_MAX, ConfigModel, fields_by_name, problem, trait_of
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.properties_file import Entry, load_properties
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.tls_settings import check_tls, outer_entries
from rocketbroker.common.config.transport_config import NAMESRV_PORT, TransportConfig
from rocketbroker.common.errors import ConfigError, shown

# Validation of entries into models; errors for unknown names and invalid or rejected values name the location.
#
# A name of RocketMQ 4.x or 5.x that no model has is rejected, warned of or counted (`unserved`); an unknown name is an
# error with the nearest known name. MixAll.properties2Object ignores all of them.

MODELS: tuple[type[ConfigModel], ...] = (
    BrokerConfig,
    MessageStoreConfig,
    NamesrvConfig,
    TransportConfig,
    ProxyConfig,
)

Model = TypeVar("Model", bound=ConfigModel)
_MOST_NAMED = 3


@dataclass(slots=True)
class Resolved:
    """Models by class, warnings of one line, and the values of properties without effect.

    ``silent`` has the names of those that are only counted.
    """

    models: dict[type[ConfigModel], ConfigModel]
    warnings: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    not_acted_on: dict[str, str] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)

    def model(self, kind: type[Model]) -> Model:
        """Return the model of a class that was among the `kinds` of `resolve`."""
        model = self.models[kind]
        assert isinstance(model, kind)
        return model

    def notes(self) -> tuple[str, ...]:
        """Return a line about the settings that have no counterpart here, none if there are none."""
        count = len(self.silent)
        if not count:
            return ()
        names = ", ".join(self.silent[:_MOST_NAMED]) + (", ..." if count > _MOST_NAMED else "")
        settings, change = ("settings", "change") if count > 1 else ("setting", "changes")
        return (
            f"{count} {settings} of RocketMQ {change} nothing here ({names}): docs/coming-from-rocketmq/settings.md",
        )


def resolve(
    kinds: Sequence[type[ConfigModel]], entries: Iterable[Entry], defaults: Mapping[str, object] | None = None
) -> Resolved:
    """Build the models of `kinds`; a later entry of the same name wins over an earlier one and over `defaults`.

    Raises:
        ConfigError: Settings are invalid, one line for each.
    """
    last = {entry.key: entry for entry in entries}
    tables = {kind: fields_by_name(kind) for kind in kinds}
    problems: dict[str, str] = {}
    result = Resolved({}, given=set(last))
    for entry in last.values():
        if not any(entry.key in table for table in tables.values()):
            _unacted(entry, result, problems)
    for kind, table in tables.items():
        values = {name: value for name, value in (defaults or {}).items() if name in table}
        chosen = {name: last[name] for name in table if name in last}
        _build(kind, values, chosen, result, problems)
    if problems:
        raise ConfigError("\n".join(_worst({name: problems[name] for name in last if name in problems})))
    return result


def _build(
    kind: type[ConfigModel],
    values: dict[str, object],
    chosen: dict[str, Entry],
    result: Resolved,
    problems: dict[str, str],
) -> None:
    try:
        result.models[kind] = kind.model_validate(values | {name: entry.value for name, entry in chosen.items()})
    except ValidationError as error:
        for details in error.errors(include_url=False):
            entry = chosen[str(details["loc"][0])]
            problems[entry.key] = f"{entry.where}: {problem(kind, details, entry.value)}"


def _unacted(entry: Entry, result: Resolved, problems: dict[str, str]) -> None:
    refusal = known_properties.refusal(entry.key, entry.value)
    if refusal:
        problems[entry.key] = f"{entry.where}: {refusal}"
        return
    own = [name for model in MODELS for name in fields_by_name(model)]
    known = known_properties.find(entry.key)
    if known is not None and unserved.is_default(entry.value, known.default):
        result.silent.append(entry.key)
    elif entry.key in own:
        result.warnings.append(f"{entry.where}: {entry.key} has no effect in this process")
    elif known is not None or known_properties.is_refused_setting(entry.key):
        if entry.key in unserved.EXPECTED:
            instead = unserved.EXPECTED[entry.key]
            given = f"{entry.key}={shown(entry.value)}"
            result.warnings.append(f"{entry.where}: {given} has no effect in this version: {instead}")
        else:
            result.silent.append(entry.key)
    else:
        near = known_properties.nearest(entry.key, own)
        hint = f"; did you mean {near}?" if near else ""
        problems[entry.key] = f"{entry.where}: unknown setting {entry.key}{hint}"
        return
    result.not_acted_on[entry.key] = "******" if entry.key in _SECRETS else entry.value


_SECRETS = frozenset(
    name for model in MODELS for name, (_, field) in fields_by_name(model).items() if trait_of(field).secret
)


def _worst(problems: dict[str, str]) -> list[str]:
    """Return only the rejected role if there is one: it explains the other problems of such a file."""
    role = problems.get("brokerRole", "")
    return [role] if " is rejected: " in role else list(problems.values())


NAMESRV_ADDR_ENV = "NAMESRV_ADDR"
#: The VIP port is this much lower than listenPort.
VIP_PORT_DISTANCE = 2


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """Settings of a broker. `path` is the file of `-c`; `not_acted_on` has the properties without effect.

    `warnings` are worth reading, `notes` are not, each of one line.
    """

    broker: BrokerConfig
    store: MessageStoreConfig
    transport: TransportConfig
    path: Path | None
    warnings: tuple[str, ...]
    not_acted_on: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[ConfigModel, ...]:
        """Models that GET_BROKER_CONFIG shows; the first one wins for a shared name."""
        return (self.broker, self.store, self.transport)

    @property
    def persist_path(self) -> Path:
        """File for changes at run time: the one given, else `broker.properties` in the store's config directory."""
        return self.path or self.store.config_dir / "broker.properties"

    def at_port(self, port: int) -> "BrokerSettings":
        """Return the settings with the port that was bound, which the system chose for ``listenPort=0``."""
        if self.transport.listen_port == port:
            return self
        return replace(
            self,
            broker=self.broker.model_copy(update={"listen_port": port}),
            store=_with_ha_port(self.store, port),
            transport=self.transport.model_copy(update={"listen_port": port}),
        )

    def with_broker(self, **changes: object) -> "BrokerSettings":
        """Return the settings with other values of `BrokerConfig`, by attribute."""
        return replace(self, broker=self.broker.model_copy(update=changes))

    def at_ha_port(self, port: int) -> "BrokerSettings":
        """Return the settings with the HA port that was bound."""
        return replace(self, store=self.store.model_copy(update={"ha_listen_port": port}))


@dataclass(frozen=True, slots=True)
class NamesrvSettings:
    """Settings of a name server, as in `BrokerSettings`."""

    namesrv: NamesrvConfig
    transport: TransportConfig
    path: Path | None
    warnings: tuple[str, ...]
    not_acted_on: dict[str, str]
    notes: tuple[str, ...] = ()

    @property
    def models(self) -> tuple[ConfigModel, ...]:
        """Models that GET_NAMESRV_CONFIG shows."""
        return (self.namesrv, self.transport)

    @property
    def persist_path(self) -> Path:
        """File for changes at run time (configStorePath)."""
        return Path(self.namesrv.config_store_path)


def load_broker_settings(
    path: str | Path | None = None,
    namesrv_addr: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> BrokerSettings:
    """Return the settings of a broker from the file `path`, `-n` and NAMESRV_ADDR.

    Raises:
        ConfigError: Settings are invalid, one line for each.
    """
    environment = os.environ if environment is None else environment
    given = load_properties(path) if path is not None else []
    entries = [*_environment_entries(environment), *outer_entries(environment, given), *given]
    if namesrv_addr is not None:
        entries.append(Entry("namesrvAddr", namesrv_addr, "-n"))
    return broker_settings_of(entries, Path(path) if path is not None else None)


def broker_settings_of(entries: Sequence[Entry], path: Path | None = None) -> BrokerSettings:
    """Return the settings of a broker from its properties; ``path`` is their file.

    Raises:
        ConfigError: Settings are invalid, one line for each.
    """
    resolved = resolve((BrokerConfig, MessageStoreConfig, TransportConfig), entries)
    broker, store = resolved.model(BrokerConfig), resolved.model(MessageStoreConfig)
    if store.enable_auto_in_sync_replicas and not broker.enable_slave_acting_master:
        store = store.model_copy(update={"enable_auto_in_sync_replicas": False})
        resolved.warnings.append(
            "enableAutoInSyncReplicas=true has no effect without enableSlaveActingMaster=true, as in RocketMQ: sends "
            "wait for inSyncReplicas"
        )
    transport = resolved.model(TransportConfig)
    check_tls(transport)
    check_auth(transport)
    _check_id(broker, store, entries)
    return BrokerSettings(
        _with_bound_address(broker, transport.bind_address, resolved.given),
        _with_ha_port(store, transport.listen_port, given="haListenPort" in resolved.given),
        transport,
        path,
        (*resolved.warnings, *_role_warnings(broker, store)),
        resolved.not_acted_on,
        resolved.notes(),
    )


def load_namesrv_settings(path: str | Path | None = None) -> NamesrvSettings:
    """Return the settings of a name server from the file `path`.

    Raises:
        ConfigError: Settings are invalid, one line for each.
    """
    given = load_properties(path) if path is not None else []
    entries = [*outer_entries(os.environ, given), *given]
    if path is not None:  # as in RocketMQ, changes are written to the file of -c
        entries.append(Entry("configStorePath", str(path), "-c"))
    resolved = resolve((NamesrvConfig, TransportConfig), entries, {"listenPort": NAMESRV_PORT})
    check_tls(resolved.model(TransportConfig))
    check_auth(resolved.model(TransportConfig))
    return NamesrvSettings(
        resolved.model(NamesrvConfig),
        resolved.model(TransportConfig),
        Path(path) if path is not None else None,
        tuple(resolved.warnings),
        resolved.not_acted_on,
        resolved.notes(),
    )


def _environment_entries(environment: Mapping[str, str]) -> list[Entry]:
    addresses = environment.get(NAMESRV_ADDR_ENV, "")
    return [Entry("namesrvAddr", addresses, f"environment variable {NAMESRV_ADDR_ENV}")] if addresses else []


def _check_id(broker: BrokerConfig, store: MessageStoreConfig, entries: Sequence[Entry]) -> None:
    """Reject a master with a slave's id, and a slave with the master's (BrokerStartup.buildBrokerController)."""
    is_slave = store.broker_role == "SLAVE"
    if is_slave == (broker.broker_id > 0):
        return
    name = "brokerRole" if is_slave else "brokerId"
    where = next(entry.where for entry in reversed(entries) if entry.key in {"brokerId", name})
    known = "brokerRole=SLAVE" if is_slave else f"brokerRole={store.broker_role}"
    raise ConfigError(
        f"{where}: brokerId={broker.broker_id} is rejected: a master's brokerId is 0, a slave's is 1 or more, and this "
        f"broker has {known}"
    )


def _with_bound_address(broker: BrokerConfig, bind_address: str, given: Container[str]) -> BrokerConfig:
    """Register the address that is listened on, for clients and for slaves, unless another one is given."""
    try:
        if ip_address(bind_address).is_unspecified:
            return broker
    except ValueError:  # empty, or a name; messages hold addresses
        return broker
    fields = {"brokerIP1": "broker_ip1", "brokerIP2": "broker_ip2"}
    return broker.model_copy(update={field: bind_address for name, field in fields.items() if name not in given})


def _role_warnings(broker: BrokerConfig, store: MessageStoreConfig) -> Iterator[str]:
    """Name settings that the role leaves without effect."""
    if store.broker_role == "SYNC_MASTER" and not store.most_needed_slaves:
        yield (
            "brokerRole=SYNC_MASTER with inSyncReplicas=1, the default, waits for no slave; set inSyncReplicas=2 to "
            "have each message on a slave before it is acknowledged"
        )
    if broker.enable_slave_acting_master and store.broker_role == "SLAVE" and not broker.slave_read_enable:
        yield (
            "enableSlaveActingMaster=true with slaveReadEnable=false: this slave serves no pulls while it acts as "
            "master, as in RocketMQ; set slaveReadEnable=true"
        )
    if store.broker_role != "SLAVE" and store.ha_master_address:
        yield f"haMasterAddress has no effect with brokerRole={store.broker_role}: only a slave has a master"


def _with_ha_port(store: MessageStoreConfig, listen_port: int, *, given: bool = True) -> MessageStoreConfig:
    """Set the HA port to the broker's port plus 1 unless the file gives one other than 0, as BrokerStartup does."""
    if given and store.ha_listen_port:
        return store
    return store.model_copy(update={"ha_listen_port": listen_port + 1 if 0 < listen_port < PORT_MAX else 0})
