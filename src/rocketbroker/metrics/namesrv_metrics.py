"""Metrics and health of a name server; RocketMQ's has none, so that all names are ours."""

from collections.abc import Callable, Iterator
from typing import Final

from rocketbroker.common.config import NamesrvConfig
from rocketbroker.common.config.metrics_settings import parse_labels
from rocketbroker.metrics.family import Block, Family, Report, gauge
from rocketbroker.metrics.health import Condition
from rocketbroker.metrics.loop_watch import LoopWatch
from rocketbroker.metrics.remoting_metrics import RemotingMetricsManager
from rocketbroker.namesrv.route_info_manager import RouteInfoManager

_MOST_LABEL_SETS: Final = 50_000


class NamesrvMetrics:
    """All metrics of a name server, and its health.

    Args:
        config: further labels.
        routes: what is registered.
        remoting: times of requests.
        loop: the event loop.
        address: returns the address that the metrics name.
    """

    def __init__(
        self,
        config: NamesrvConfig,
        routes: RouteInfoManager,
        remoting: RemotingMetricsManager,
        loop: LoopWatch,
        address: Callable[[], str],
    ) -> None:
        self._config = config
        self._routes = routes
        self._remoting = remoting
        self._loop = loop
        self._address = address

    async def report(self) -> Report:
        """Return all metrics."""
        labels = {
            **parse_labels(self._config.metrics_label),
            "node_type": "nameserver",
            "node_id": self._address(),
        }
        return Report(labels, _MOST_LABEL_SETS, [Block("", self._families())])

    def _families(self) -> Iterator[Family]:
        brokers = self._routes.brokers
        topics = len(self._routes.topic_queues.topics())
        by_cluster = [({"cluster": name}, len(names)) for name, names in brokers.clusters.items()]
        yield gauge("rocketbroker_namesrv_brokers", [({}, len(brokers.live))], "Registered brokers, slaves included.")
        yield gauge("rocketbroker_namesrv_broker_names", by_cluster, "Names of brokers in a cluster.")
        yield gauge("rocketbroker_namesrv_topics", [({}, topics)], "Topics with a route.")
        yield from self._loop.families()
        yield from self._remoting.rpc("rocketbroker")
        yield from self._remoting.refusals()
        yield from self._remoting.access()
        yield from self._remoting.tls()

    def alive(self) -> list[Condition]:
        """Return the conditions without which only a restart helps."""
        return [Condition("eventLoop", True, "it answers")]

    def ready(self) -> list[Condition]:
        """Return the conditions under which it serves: it listens before this port does."""
        return [Condition("routes", True, f"{len(self._routes.brokers.live)} brokers are registered")]
