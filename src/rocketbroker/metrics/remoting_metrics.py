"""Times of requests (org.apache.rocketmq.remoting.metrics.RemotingMetricsManager), and refused ones."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from rocketbroker.auth.request_guard import RequestGuard
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.family import Family, Samples, counter, gauge, histogram
from rocketbroker.transport.remoting_server import RemotingServer
from rocketbroker.transport.request_meter import BUCKETS_S, UNKNOWN_CODE, Latency

# In ms. Only changes to tables have a bucket up to 5 s.
RPC_BOUNDS: Final = tuple(round(bound * 1000) for bound in BUCKETS_S[:-1])
CREATE_BOUNDS: Final = (10, 100, 1000, 3000, 5000)
_REQUESTS: Final = {each.value: each.name.lower() for each in RequestCode} | {UNKNOWN_CODE: "unknown"}
_RESPONSES: Final = {each.value: each.name.lower() for each in ResponseCode}
_TOPIC_CODES: Final = frozenset({RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST})
_GROUP_CODES: Final = frozenset(
    {RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST}
)
# Answers of requests that were served.
_SERVED: Final = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.NO_MESSAGE,
    }
)


def _name(names: dict[int, str], code: int) -> str:
    return names.get(code, str(code))


def refusals_of(guard: RequestGuard) -> Iterator[Family]:
    """Yield what an access control refused."""
    refusals = guard.refusals
    failed = refusals.failed_attempts
    yield counter(
        "rocketbroker_access_denied_total",
        [({"cause": "authentication"}, failed.failures), ({"cause": "authorization"}, refusals.denied)],
        "Requests without valid credentials, and those of users without the right.",
    )
    yield counter(
        "rocketbroker_access_delayed_total",
        [({}, failed.delayed)],
        "Requests without valid credentials whose answer was delayed, because their address has failed often.",
    )


class RemotingMetricsManager:
    """Metrics of a server's requests.

    Args:
        server: the server.
        guard: its access control, if it has one.
    """

    def __init__(self, server: RemotingServer, guard: RequestGuard | None = None) -> None:
        self._server = server
        self._guard = guard
        self._meter = server.meter

    def rpc(self, prefix: str = "rocketmq") -> Iterator[Family]:
        """Yield ``rpc_latency``."""
        yield histogram(f"{prefix}_rpc_latency_milliseconds", self._rpc_latency(), "Rpc latency")

    def _rpc_latency(self) -> Samples:
        for key, latency in list(self._meter.figures.items()):
            labels = {
                "protocol_type": "remoting",
                "request_code": _name(_REQUESTS, key.code),
                "response_code": _name(_RESPONSES, key.response_code),
                "is_long_polling": str(key.is_long_polling).lower(),
                "result": "oneway" if key.is_oneway else "success",
            }
            yield labels, _in_ms(latency, RPC_BOUNDS)

    def creations(self) -> Iterator[Family]:
        """Yield the times of changes to topics and groups."""
        topics = self._creations(_TOPIC_CODES, {"is_system": "false"})
        groups = self._creations(_GROUP_CODES, {})
        name, text = "rocketmq_{}_create_execution_time_milliseconds", "The distribution of create {} time"
        yield histogram(name.format("topic"), topics, text.format("topic"))
        yield histogram(name.format("consumer_group"), groups, text.format("subscription"))

    def _creations(self, codes: frozenset[RequestCode], labels: dict[str, str]) -> Samples:
        found: dict[str, Histogram] = {}
        for key, latency in self._meter.figures.items():
            if key.code in codes:
                status = "failure" if key.response_code else "success"
                found.setdefault(status, Histogram(CREATE_BOUNDS)).take(_in_ms(latency, CREATE_BOUNDS))
        for status, times in found.items():
            yield {"invocation_status": status, **labels}, times

    def refusals(self) -> Iterator[Family]:
        """Yield what was refused, by cause."""
        requests: Counter[tuple[int, int]] = Counter()
        for key, latency in self._meter.figures.items():
            if key.response_code not in _SERVED:
                requests[key.code, key.response_code] += latency.count
        yield counter(
            "rocketbroker_refused_requests_total",
            (
                ({"request_code": _name(_REQUESTS, code), "cause": _name(_RESPONSES, cause)}, number)
                for (code, cause), number in requests.items()
            ),
            "Requests that were answered with an error, by its code.",
        )
        yield counter(
            "rocketbroker_rejected_connections_total",
            [({"cause": cause}, number) for cause, number in self._server.rejected_connections.items()],
            "Connections that a limit rejected, by its setting, and those of failing addresses (failedConnections).",
        )

    def access(self) -> Iterator[Family]:
        """Yield what access control refused, on all ports of the server."""
        if self._guard is not None:
            yield from refusals_of(self._guard)

    def tls(self) -> Iterator[Family]:
        """Yield the expiry of the certificate, and handshakes that failed, of a port with TLS."""
        tls = self._server.tls
        if tls is None:
            return
        if tls.expires_ms is not None:
            yield gauge(
                "rocketbroker_certificate_expiry_timestamp_seconds",
                [({}, tls.expires_ms / 1000)],
                "Time at which the certificate of the port expires, in seconds since 1970.",
            )
        yield counter(
            "rocketbroker_tls_handshake_failures_total",
            [({}, tls.failed)],
            "Connections that ended before they were served: failed handshakes, and plain text where it is rejected.",
        )


def _in_ms(latency: Latency, bounds: tuple[int, ...]) -> Histogram:
    """Return times in fewer buckets."""
    times = Histogram(bounds)
    times.count, times.sum = latency.count, latency.seconds * 1000
    own = [round(bound * 1000) for bound in BUCKETS_S]
    at = 0
    for bound, number in zip([*own, float("inf")], latency.buckets, strict=True):
        while at < len(bounds) and bound > bounds[at]:
            at += 1
        times.buckets[at] += number
    return times
