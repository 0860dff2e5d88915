"""Sub-commands that write files about a cluster (org.apache.rocketmq.tools.command.export)."""

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import gettempdir
from typing import Annotated, Any, Final, TypeVar

import msgspec
import typer

from rocketbroker.app.mqadmin.clusters import first_number
from rocketbroker.app.mqadmin.command import Report, chosen_masters, sub_command
from rocketbroker.app.mqadmin.statistics import TOPIC_PUT_NUMS, counter, sum_of_day
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.client.core.requests import version_desc
from rocketbroker.codec.message.topic_validator import RMQ_SYS_SCHEDULE_TOPIC, RMQ_SYS_TRANS_HALF_TOPIC
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.topic_config import SubscriptionGroupConfig, TopicConfig
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.errors import BrokerResponseError

Cluster = Annotated[str, typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Cluster to export.")]
Folder = Annotated[
    Path | None,
    typer.Option(
        "-f",
        "--filePath",
        metavar="FOLDER",
        help="Folder of the file; by default rocketmq/export in the folder for temporary files.",
    ),
]

Entry = TypeVar("Entry", TopicConfig, SubscriptionGroupConfig)


def write_export(folder: Path | None, name: str, data: Mapping[str, Any]) -> Path:
    """Write a file of RocketMQ's JSON, whole or not at all; make the folder if it is missing.

    Without a folder it goes where Apache's tool writes it.

    Raises:
        ClientError: the file cannot be written.
    """
    folder = folder or Path(gettempdir(), "rocketmq", "export")
    path = folder / name
    part = path.with_name(f".{name}.{os.getpid()}")
    content = fastjson.dumps(data, indent="\t")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = part.open("xb")  # no link that another user has put there is followed
        try:
            with file:
                file.write(content)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ClientError(f"cannot write {path}: {error.strerror}; choose another folder with -f") from error
    return path


# -- exportMetadata


@sub_command("exportMetadata", "Write topics and consumer groups to a file.")
async def export_metadata(
    admin: AdminClient,
    broker_addr: Annotated[
        str | None, typer.Option("-b", "--brokerAddr", metavar="HOST:PORT", help="Export from this broker.")
    ] = None,
    cluster_name: Annotated[
        str | None,
        typer.Option("-c", "--clusterName", metavar="CLUSTER", help="Export from all masters of this cluster."),
    ] = None,
    file_path: Folder = None,
    topic: Annotated[bool, typer.Option("-t", "--topic", help="Export topics only.")] = False,
    subscription_group: Annotated[
        bool, typer.Option("-g", "--subscriptionGroup", help="Export consumer groups only.")
    ] = False,
    special_topic: Annotated[
        bool, typer.Option("-s", "--specialTopic", help="Export retry and dead-letter topics too.")
    ] = False,
) -> Report:
    """Write topics and consumer groups of a broker (-b) or of a cluster (-c) to a file.

    Queue numbers of a cluster are the sums over its masters.
    """
    if topic and subscription_group:
        raise typer.BadParameter("give -t (topics only), -g (consumer groups only), or neither (both)")
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroupConfig] = {}
    for address in await chosen_masters(admin, broker_addr, cluster_name):
        if not subscription_group:
            for name, config in (await admin.get_user_topic_config(address, special_topic=special_topic)).items():
                if (known := topics.setdefault(name, config)) is not config:
                    known.read_queue_nums += config.read_queue_nums
                    known.write_queue_nums += config.write_queue_nums
        if not topic:
            for name, group in (await admin.get_user_subscription_group(address)).items():
                if (other := groups.setdefault(name, group)) is not group:
                    other.retry_queue_nums += group.retry_queue_nums
    data: dict[str, Any] = {"exportTime": SystemClock().time_ms()}
    if not subscription_group:
        data["topicConfigTable"] = topics
    if not topic:
        data["subscriptionGroupTable"] = groups
    name = "topic.json" if topic else "subscriptionGroup.json" if subscription_group else "metadata.json"
    return _written(write_export(file_path, name, data), data)


def _written(path: Path, data: Mapping[str, Any]) -> Report:
    return Report({"file": str(path), "content": msgspec.to_builtins(data)}, [f"export {path} success"])


# -- exportConfigs

# Settings that matter when a cluster is moved (ExportConfigsCommand.needBrokerProprties).
EXPORTED_SETTINGS: Final = (
    "autoCreateSubscriptionGroup", "autoCreateTopicEnable", "brokerClusterName", "brokerId", "brokerName", "brokerRole",
    "fileReservedTime", "filterServerNums", "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName",
    "slaveReadEnable", "traceOn", "traceTopicEnable", "useTLS",
)  # fmt: skip


@sub_command("exportConfigs", "Write the main settings of a cluster to a file.")
async def export_configs(admin: AdminClient, cluster_name: Cluster, file_path: Folder = None) -> Report:
    """Write the main settings of the masters of a cluster, and the number of its servers, to a file."""
    configs = {}
    for name, master in (await admin.fetch_master_addresses(cluster_name)).items():
        settings = await admin.get_broker_config(master)
        configs[name] = {key: settings[key] for key in EXPORTED_SETTINGS if key in settings}
    data = {
        "clusterScale": {
            "namesrvSize": len(await admin.name_server_addresses()),
            "masterBrokerSize": len(configs),
            "slaveBrokerSize": len(await admin.fetch_broker_addresses(cluster_name)) - len(configs),
        },
        "brokerConfigs": configs,
    }
    return _written(write_export(file_path, "configs.json", data), data)


# -- exportMetrics


@sub_command("exportMetrics", "Write the rates, sizes and client versions of a cluster to a file.")
async def export_metrics(admin: AdminClient, cluster_name: Cluster, file_path: Folder = None) -> Report:
    """Write the rates, sizes and client versions of the masters of a cluster to a file."""
    report: dict[str, Any] = {}
    rates = dict.fromkeys(("totalNormalInTps", "totalNormalOutTps", "totalTransInTps", "totalScheduleInTps"), 0.0)
    sums = dict.fromkeys(("normalOneDayInNum", "normalOneDayOutNum", "transOneDayInNum", "scheduleOneDayInNum"), 0)
    for name, address in (await admin.fetch_master_addresses(cluster_name)).items():
        quota = await _quota(admin, address)
        report[name] = {
            "runtimeEnv": quota.pop("runtimeEnv"),
            "runtimeVersion": quota.pop("runtimeVersion"),
            "runtimeQuota": quota,
        }
        for key, value in quota["tps"].items():
            rates[f"total{key[0].upper()}{key[1:]}"] += value
        for key, value in quota["oneDayNum"].items():
            sums[key] += value
    data = {"evaluateReport": report, "totalData": {"totalTps": rates, "totalOneDayNum": sums}}
    return _written(write_export(file_path, "metrics.json", data), data)


async def _quota(admin: AdminClient, address: str) -> dict[str, Any]:
    """Return what exportMetrics says about a broker; a figure that a broker does not tell is 0 or missing."""
    runtime = await admin.fetch_broker_runtime_stats(address)
    settings = await admin.get_broker_config(address)
    groups = await admin.get_user_subscription_group(address)
    transactions = await counter(admin, address, TOPIC_PUT_NUMS, RMQ_SYS_TRANS_HALF_TOPIC)
    delayed = await counter(admin, address, TOPIC_PUT_NUMS, RMQ_SYS_SCHEDULE_TOPIC)
    # The number of threads that Apache's broker makes by the number of processors.
    env = {"cpuNum": settings.get("clientCallbackExecutorThreads"), "totalMemKBytes": runtime.get("totalMemKBytes")}
    ratios = {key: runtime.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")}
    return {
        "runtimeEnv": _known(env),
        "runtimeVersion": {
            "rocketmqVersion": runtime.get("brokerVersionDesc", ""),
            "clientInfo": await _client_versions(admin, groups),
        },
        "diskRatio": _known(ratios),
        "tps": {
            "normalInTps": first_number(runtime, "putTps") or 0.0,
            "normalOutTps": first_number(runtime, "getTransferredTps") or 0.0,
            "transInTps": transactions.stats_minute.tps,
            "scheduleInTps": delayed.stats_minute.tps,
        },
        "oneDayNum": {
            "normalOneDayInNum": _yesterday(runtime, "msgPutTotal"),
            "normalOneDayOutNum": _yesterday(runtime, "msgGetTotal"),
            "transOneDayInNum": sum_of_day(transactions),
            "scheduleOneDayInNum": sum_of_day(delayed),
        },
        **_known({"messageAverageSize": runtime.get("putMessageAverageSize")}),
        "topicSize": len(await admin.get_user_topic_config(address)),
        "groupSize": len(groups),
    }


def _known(values: Mapping[str, str | None]) -> dict[str, str]:
    return {key: value for key, value in values.items() if value is not None}


async def _client_versions(admin: AdminClient, groups: Mapping[str, SubscriptionGroupConfig]) -> list[str]:
    """Return language and version of the clients of groups, as ``JAVA%V5_5_0``."""
    found: set[str] = set()
    for group in groups:
        try:
            clients = await admin.examine_consumer_connection_info(group)
        except TopicRouteError:
            continue
        except BrokerResponseError as error:
            if error.code != ResponseCode.CONSUMER_NOT_ONLINE:
                raise
            continue
        found |= {f"{client.language}%{version_desc(client.version)}" for client in clients.connection_set}
    return sorted(found)


def _yesterday(runtime: Mapping[str, str], name: str) -> int:
    """Return the growth of a total from yesterday's morning to today's."""
    today, yesterday = (first_number(runtime, f"{name}{day}Morning") or 0 for day in ("Today", "Yesterday"))
    return round(today - yesterday)
