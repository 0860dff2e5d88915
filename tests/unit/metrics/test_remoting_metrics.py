"""Metrics of requests."""

from types import SimpleNamespace
from typing import Any

import pytest

from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.remoting_metrics import CREATE_BOUNDS, RPC_BOUNDS, RemotingMetricsManager
from rocketbroker.transport.request_meter import Latency, RequestKey, RequestMeter


def manager(figures: dict[RequestKey, list[float]]) -> RemotingMetricsManager:
    meter = RequestMeter({})
    for key, times in figures.items():
        latency = meter.figures[key] = Latency()
        for each in times:
            latency.add(each)
    server: Any = SimpleNamespace(meter=meter, rejected_connections={"maxConnections": 2})
    return RemotingMetricsManager(server)


def samples(family: Any) -> list[tuple[dict[str, str], Any]]:
    return [each for each in family.samples if each is not None]


def test_a_request_has_rocketmqs_labels_and_milliseconds():
    (family,) = manager({RequestKey(310, 0): [0.0005, 0.002, 4.0], RequestKey(15, 0, True): [0.001]}).rpc()
    (sent, times), (oneway, _) = samples(family)

    assert sent == {
        "protocol_type": "remoting",
        "request_code": "send_message_v2",
        "response_code": "success",
        "is_long_polling": "false",
        "result": "success",
    }
    assert oneway["result"] == "oneway"
    assert isinstance(times, Histogram)
    assert times.bounds == RPC_BOUNDS
    assert RPC_BOUNDS == (1, 3, 5, 7, 10, 100, 1000, 2000, 3000)
    assert (times.buckets, times.count) == ([1, 1, 0, 0, 0, 0, 0, 0, 0, 1], 3)
    assert times.sum == pytest.approx(4002.5)


def test_unknown_codes_are_numbers_and_those_without_a_route_are_one():
    (family,) = manager({RequestKey(-1, 3): [0.1], RequestKey(310, 99_999): [0.1]}).rpc()

    assert [(each["request_code"], each["response_code"]) for each, _ in samples(family)] == [
        ("unknown", "request_code_not_supported"),
        ("send_message_v2", "99999"),
    ]


def test_changes_to_topics_and_groups_have_buckets_of_their_own():
    figures = {RequestKey(17, 0): [0.05], RequestKey(18, 0): [4.0, 6.0], RequestKey(17, 1): [0.001]}
    topics, groups = manager({**figures, RequestKey(200, 0): [0.002]}).creations()

    found = {labels["invocation_status"]: times for labels, times in samples(topics)}
    assert found["success"].bounds == CREATE_BOUNDS
    assert found["success"].buckets == [0, 1, 0, 0, 1, 1]
    assert found["failure"].buckets == [1, 0, 0, 0, 0, 0]
    assert [labels for labels, _ in samples(groups)] == [{"invocation_status": "success"}]


def test_refusals_count_by_code_and_cause():
    figures = {RequestKey(310, 2): [0.1, 0.1], RequestKey(310, 2, True): [0.1], RequestKey(11, 19): [15.0]}
    requests, connections = manager(figures).refusals()

    assert samples(requests) == [({"request_code": "send_message_v2", "cause": "system_busy"}, 3)]
    assert samples(connections) == [({"cause": "maxConnections"}, 2)]


def test_a_port_with_tls_has_its_expiry_and_failed_handshakes():
    metrics = manager({})
    metrics._server.tls = SimpleNamespace(expires_ms=1_893_456_000_000, failed=3)  # type: ignore[assignment]

    found = {family.name: samples(family) for family in metrics.tls()}

    assert found == {
        "rocketbroker_certificate_expiry_timestamp_seconds": [({}, 1_893_456_000.0)],
        "rocketbroker_tls_handshake_failures_total": [({}, 3)],
    }
    metrics._server.tls = None
    assert list(metrics.tls()) == []


def test_refusals_of_access_control_have_their_cause():
    attempts = SimpleNamespace(failures=5, delayed=2)
    guard: Any = SimpleNamespace(refusals=SimpleNamespace(failed_attempts=attempts, denied=3))
    server: Any = SimpleNamespace(meter=RequestMeter({}), rejected_connections={})
    denied, delayed = RemotingMetricsManager(server, guard).access()
    assert samples(denied) == [({"cause": "authentication"}, 5), ({"cause": "authorization"}, 3)]
    assert samples(delayed) == [({}, 2)]
    assert list(RemotingMetricsManager(server).access()) == []
