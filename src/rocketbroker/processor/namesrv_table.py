"""Request codes of the name server and their processors, one line each."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from rocketbroker.codec.remoting.handler import Audience, MethodTable, Route
from rocketbroker.codec.remoting.headers import namesrv as headers
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.fields import ConfigModel
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.namesrv.kv_config_manager import KVConfigManager
from rocketbroker.namesrv.route_info_manager import RouteInfoManager
from rocketbroker.processor.namesrv.kv_config import KVConfigRequests
from rocketbroker.processor.namesrv.registrations import (
    BrokerHeartbeatProcessor,
    GetBrokerMemberGroupProcessor,
    QueryDataVersionProcessor,
    RegisterBrokerProcessor,
    UnregisterBrokerProcessor,
)
from rocketbroker.processor.namesrv.routes import (
    DeleteTopicInNamesrvProcessor,
    GetAllTopicListFromNameserverProcessor,
    GetBrokerClusterInfoProcessor,
    GetRouteInfoByTopicProcessor,
    GetSystemTopicListFromNsProcessor,
    GetTopicsByClusterProcessor,
    GetUnitTopicListProcessor,
    RegisterTopicInNamesrvProcessor,
    WritePermOfBrokerProcessor,
)
from rocketbroker.processor.namesrv.settings import NamesrvSettingsRequests
from rocketbroker.processor.support.request_family import routes_of


@dataclass(frozen=True, slots=True)
class ConfigStore:
    """Settings that requests may change, and where changes are stored.

    ``models`` are changed in place, ``path`` is the file, ``on_change`` is called after a change.
    """

    models: Sequence[ConfigModel]
    path: Path
    on_change: Callable[[], None]


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
) -> dict[int, Route]:
    """Route all requests that a name server answers."""
    brokers, queues, code = manager.brokers, manager.topic_queues, RequestCode
    units = GetUnitTopicListProcessor(config, queues, manager.answers)
    perm = WritePermOfBrokerProcessor(manager)
    register = RegisterBrokerProcessor(config, manager, kv_configs, executors.decode)
    route = GetRouteInfoByTopicProcessor(config, manager.routes, kv_configs, clock)
    all_topics = GetAllTopicListFromNameserverProcessor(config, queues, manager.answers)
    by_cluster = GetTopicsByClusterProcessor(config, manager)
    table = MethodTable()
    add = table.add
    add(
        code.REGISTER_BROKER,
        register.process,
        headers.RegisterBrokerRequestHeader,
        Audience.BROKER,
        takes_large_bodies=True,
    )
    add(
        code.UNREGISTER_BROKER,
        UnregisterBrokerProcessor(manager).process,
        headers.UnRegisterBrokerRequestHeader,
        Audience.BROKER,
    )
    add(
        code.QUERY_DATA_VERSION,
        QueryDataVersionProcessor(manager).process,
        headers.QueryDataVersionRequestHeader,
        Audience.BROKER,
    )
    add(
        code.BROKER_HEARTBEAT,
        BrokerHeartbeatProcessor(manager).process,
        headers.BrokerHeartbeatRequestHeader,
        Audience.BROKER,
    )
    add(
        code.GET_BROKER_MEMBER_GROUP,
        GetBrokerMemberGroupProcessor(brokers).process,
        headers.GetBrokerMemberGroupRequestHeader,
        Audience.BROKER,
    )
    add(
        code.GET_BROKER_CLUSTER_INFO,
        GetBrokerClusterInfoProcessor(brokers, manager.answers).process,
        audience=Audience.CLIENT,
    )
    add(code.GET_ROUTEINFO_BY_TOPIC, route.process, headers.GetRouteInfoRequestHeader, Audience.CLIENT)
    add(code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, all_topics.process)
    add(code.GET_TOPICS_BY_CLUSTER, by_cluster.process, headers.GetTopicsByClusterRequestHeader)
    add(code.GET_SYSTEM_TOPIC_LIST_FROM_NS, GetSystemTopicListFromNsProcessor(brokers).process)
    add(code.GET_UNIT_TOPIC_LIST, units.process)
    add(code.GET_HAS_UNIT_SUB_TOPIC_LIST, units.process_unit_sub)
    add(code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, units.process_unit_sub_ununit)
    add(
        code.DELETE_TOPIC_IN_NAMESRV,
        DeleteTopicInNamesrvProcessor(manager).process,
        headers.DeleteTopicFromNamesrvRequestHeader,
    )
    add(
        code.REGISTER_TOPIC_IN_NAMESRV,
        RegisterTopicInNamesrvProcessor(manager).process,
        headers.RegisterTopicRequestHeader,
        Audience.BROKER,
    )
    add(code.WIPE_WRITE_PERM_OF_BROKER, perm.process_wipe, headers.WipeWritePermOfBrokerRequestHeader)
    add(code.ADD_WRITE_PERM_OF_BROKER, perm.process_add, headers.AddWritePermOfBrokerRequestHeader)
    families: list[object] = [
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
    return table.routes | routes_of(families)
