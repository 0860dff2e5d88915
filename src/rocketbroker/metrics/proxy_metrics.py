"""Metrics and health of a gRPC port (org.apache.rocketmq.proxy.metrics.ProxyMetricsManager).

RocketMQ's proxy has one metric, ``rocketmq_proxy_up``; those of calls are ours.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Final, Protocol

from rocketbroker.auth.request_guard import RequestGuard
from rocketbroker.common.config.metrics_settings import parse_labels
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.errors import RocketBrokerError
from rocketbroker.common.histogram import Histogram
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.metrics.family import Block, Family, Report, Samples, counter, gauge, histogram
from rocketbroker.metrics.health import Condition
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.remoting_metrics import refusals_of

_MOST_LABEL_SETS: Final = 50_000
_SCOPE: Final = "broker-meter"
_LOOK_S: Final = 5.0


class GrpcFigures(Protocol):
    """Figures of a gRPC server.

    Attributes:
        calls: times of calls in seconds by method and code of the reply, ``None`` while nobody asks for them.
        open_calls: calls and streams that are open.
    """

    calls: dict[tuple[str, str], Histogram] | None
    open_calls: int

    @property
    def failed_handshakes(self) -> int | None:
        """Number of connections that ended before they were served, ``None`` without TLS."""

    @property
    def rejected_connections(self) -> Mapping[str, int]:
        """Number of rejected connections by cause; none without TLS."""


class ProxyAccess(Protocol):
    """Access control of a proxy.

    Attributes:
        guard: check of calls.
    """

    guard: RequestGuard

    @property
    def problem(self) -> str:
        """Reason why no users are known; empty once they are."""


class ProxyMetrics:
    """Metrics of a gRPC port, in a process of its own or in a broker's.

    Args:
        labels: cluster, ``node_id`` and mode of the proxy.
        figures: its server.
    """

    def __init__(self, labels: Mapping[str, str], figures: GrpcFigures) -> None:
        self._labels = {"node_type": "proxy", **labels}
        self._figures = figures

    def up(self) -> Family:
        """Return RocketMQ's metric."""
        return gauge("rocketmq_proxy_up", [(self._labels, 1)], "proxy status")

    def calls(self) -> Iterator[Family]:
        """Yield metrics that RocketMQ lacks."""
        yield gauge(
            "rocketbroker_grpc_open_calls", [({}, self._figures.open_calls)], "Open calls and streams of the gRPC port."
        )
        yield histogram(
            "rocketbroker_grpc_call_seconds",
            self._times(),
            "Time of calls of the gRPC port, by method and code of the reply; receives wait for messages.",
        )
        failed = self._figures.failed_handshakes
        if failed is not None:
            yield counter(
                "rocketbroker_grpc_tls_handshake_failures_total",
                [({}, failed)],
                "Connections of the gRPC port that ended before they were served: failed handshakes, and plain text "
                "where it is rejected.",
            )
            yield counter(
                "rocketbroker_grpc_rejected_connections_total",
                [({"cause": cause}, number) for cause, number in self._figures.rejected_connections.items()],
                "Connections of the gRPC port that a limit rejected, by its setting, and those of failing addresses "
                "(failedConnections).",
            )

    def _times(self) -> Samples:
        for (method, code), times in list((self._figures.calls or {}).items()):
            yield {"method": method, "code": code}, times


class ProxyReport:
    """The report of a proxy in a process of its own, and its health.

    Args:
        config: its name, and further labels.
        node_id: its name if the settings have none.
        figures: its server.
        loop: the event loop.
        find_brokers: looks for masters at the name servers, and returns their number.
        access: its access control, if calls are checked.
    """

    def __init__(
        self,
        config: ProxyConfig,
        node_id: str,
        figures: GrpcFigures,
        loop: LoopWatch,
        find_brokers: Callable[[], Awaitable[int]],
        access: ProxyAccess | None = None,
    ) -> None:
        self._labels = {
            **parse_labels(config.metrics_label),
            "cluster": config.proxy_cluster_name,
            "node_type": "proxy",
            "node_id": config.proxy_name or node_id,
        }
        if config.metrics_in_delta:
            self._labels["aggregation"] = "delta"
        self._metrics = ProxyMetrics({"proxy_mode": "cluster"}, figures)
        self._loop = loop
        self._find_brokers = find_brokers
        self._access = access
        self._brokers = Condition("brokers", False, "the name servers have not answered yet")
        self._tasks = TaskOwner("ProxyReport")

    async def start(self) -> None:
        """Begin to look for brokers."""
        self._tasks.start(self._look(), "look")
        self._tasks.every(_LOOK_S, self._look, "look")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def _look(self) -> None:
        try:
            number = await self._find_brokers()
        except RocketBrokerError as error:
            self._brokers = Condition("brokers", False, str(error))
            return
        reason = f"{number} masters are registered" if number else "no master is registered at the name servers"
        self._brokers = Condition("brokers", number > 0, reason)

    async def report(self) -> Report:
        """Return all metrics."""
        refused = [] if self._access is None else refusals_of(self._access.guard)
        own = [*self._metrics.calls(), *refused, *self._loop.families()]
        return Report(self._labels, _MOST_LABEL_SETS, [Block(_SCOPE, [self._metrics.up()]), Block("", own)])

    def alive(self) -> list[Condition]:
        """Return the conditions without which only a restart helps."""
        return [Condition("eventLoop", True, "it answers")]

    def ready(self) -> list[Condition]:
        """Return the conditions under which it serves: brokers to send requests to, and users to check calls by."""
        if self._access is None:
            return [self._brokers]
        problem = self._access.problem
        return [self._brokers, Condition("users", not problem, problem or "they are known")]
