"""Request codes of the name server: each family with the parts that it needs."""

from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.auth.access_store import AccessStore
from rocketbroker.codec.remoting.handler import Route
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.admin.auth import AuthRequests
from rocketbroker.processor.namesrv.kv_config import KVConfigRequests
from rocketbroker.processor.namesrv.registrations import RegistrationRequests
from rocketbroker.processor.namesrv.routes import RouteRequests
from rocketbroker.processor.namesrv.settings import NamesrvSettingsRequests
from rocketbroker.processor.support.request_family import routes_of


@dataclass(frozen=True, slots=True)
class ConfigStore:
    """Settings that requests may change, and where changes are stored.

    ``models`` are changed in place, ``path`` is the file, ``on_change`` is called after a change.
    """

    models: Sequence[ConfigModel]
    path: Path
    on_change: Callable[[Collection[str]], None]


@dataclass(frozen=True, slots=True)
class NamesrvExecutors:
    """Threads beside the event loop, one each: ``persist`` writes files, ``decode`` reads large registrations."""

    persist: Executor
    decode: Executor


def namesrv_routes(
    config: NamesrvConfig,
    manager: RouteInfoManager,
    kv_configs: KVConfigManager,
    store: ConfigStore,
    executors: NamesrvExecutors,
    clock: Clock,
    access: AccessStore | None = None,
) -> dict[int, Route]:
    """Route all requests that a name server answers; those for users and policies only with access control."""
    families: list[object] = [
        RegistrationRequests(
            config=config,
            manager=manager,
            kv_configs=kv_configs,
            decoder=executors.decode,
        ),
        RouteRequests(
            config=config,
            manager=manager,
            kv_configs=kv_configs,
            clock=clock,
        ),
        KVConfigRequests(
            kv_configs=kv_configs,
        ),
        NamesrvSettingsRequests(
            models=store.models,
            path=store.path,
            executor=executors.persist,
            on_change=store.on_change,
        ),
    ]
    if access is not None:
        families.append(AuthRequests(access))
    return routes_of(families)
