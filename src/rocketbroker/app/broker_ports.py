"""Ports of a broker that are off by default, and whose packages are extras: nothing of them is imported until then."""

from typing import TYPE_CHECKING

from rocketbroker.auth.request_guard import RequestGuard
from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService
from rocketbroker.broker.pop.pop_check_points import PopCheckPoints
from rocketbroker.common.clock import Clock
from rocketbroker.common.config.load import BrokerSettings
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.lifecycle import PartList
from rocketbroker.processor.support.broker_fast_failure import BrokerFastFailure
from rocketbroker.store.clean.disk_watch import MeasureDisk
from rocketbroker.transport.remoting_server import RemotingServer

if TYPE_CHECKING:
    from rocketbroker.app import grpc_port as with_grpc
    from rocketbroker.app import metrics_port as with_metrics


def grpc_port(
    broker: "with_grpc.BrokerParts",
    settings: BrokerSettings,
    polling: PopLongPollingService,
    clock: Clock,
    guard: RequestGuard | None,
) -> "with_grpc.GrpcPort | PartList":
    """Return the port of the 5.x SDKs, or an empty part.

    Raises:
        ConfigError: Its settings cannot be read, or the packages of the extra ``grpc`` are missing.
    """
    config = settings.broker
    if not config.grpc_server_enable:
        return PartList()
    try:
        from rocketbroker.app.grpc_port import InProcessBroker, broker_port
    except ImportError as error:
        raise ConfigError(f"grpcServerEnable=true: {error}") from error
    in_process = InProcessBroker(config, broker, polling)
    return broker_port(in_process, config, settings.transport, clock, guard)


def metrics_port(
    broker: "with_metrics.BrokerParts",
    settings: BrokerSettings,
    check_points: PopCheckPoints,
    fast_failure: BrokerFastFailure,
    server: RemotingServer,
    measure_disk: MeasureDisk,
    clock: Clock,
) -> "with_metrics.BrokerMetricsPort | PartList":
    """Return the exporter of metrics, or an empty part.

    Raises:
        ConfigError: It lacks a package or a setting.
    """
    if settings.broker.metrics_exporter_type == "DISABLE":
        return PartList()
    from rocketbroker.app.metrics_port import BrokerMetricsPort

    return BrokerMetricsPort(settings, broker, check_points, fast_failure, server, measure_disk, clock)
