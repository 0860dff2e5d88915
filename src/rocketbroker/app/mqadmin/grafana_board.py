"""Grafana board of the metrics of brokers and name servers.

A query has one legend, the labels of its series. ``%`` stands for the variables of the board, which choose clusters and
nodes; its ranges are Grafana's ``$__rate_interval``.
"""

from typing import Any, Final, NamedTuple

_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_CHOSEN: Final = 'cluster=~"$cluster",node_id=~"$node"'
_RATE: Final = "$__rate_interval"
_COLUMNS: Final = 3
_WIDTH: Final = 24 // _COLUMNS
_HEIGHT: Final = 8


class Query(NamedTuple):
    """A query and the legend of its series."""

    expression: str
    legend: str


class Panel(NamedTuple):
    """A graph; ``unit`` is Grafana's, ``help`` says when to worry."""

    title: str
    unit: str
    help: str
    queries: tuple[Query, ...]


def _sum(metric: str, by: str, legend: str) -> Query:
    return Query(f"sum by ({by}) ({metric}{{%}})", legend)


def _of_nodes(metric: str, by: str, legend: str, more: str = "") -> Query:
    """Return a query of the ten largest sums over nodes; a slave has its master's node_id and reports the same."""
    each = f"max by (cluster, node_id, {by}{more}) ({metric}{{%}})"
    return Query(f"topk(10, sum by ({by}) ({each}))", legend)


def _max(metric: str, by: str, legend: str) -> Query:
    return Query(f"max by ({by}) ({metric}{{%}})", legend)


def _rate(metric: str, by: str, legend: str) -> Query:
    return Query(f"topk(10, sum by ({by}) (rate({metric}{{%}}[{_RATE}])))", legend)


def _rate_of_all(metric: str, by: str, legend: str) -> Query:
    """Return a query of proxies: those in processes of their own are no nodes that the board lets choose."""
    return Query(f"topk(10, sum by ({by}) (rate({metric}[{_RATE}])))", legend)


def _quantile(quantile: float, metric: str, legend: str, more: str = "") -> Query:
    rates = f"sum by (le, node_id) (rate({metric}_bucket{{%{more}}}[{_RATE}]))"
    return Query(f"histogram_quantile({quantile}, {rates})", legend)


_SENDS: Final = ',request_code=~"send_message.*|send_batch_message"'
_GROUP: Final = "consumer_group, topic"
# Labels by which the series of one group on one node differ.
_TOPICS: Final = ", topic, is_retry"
_GROUP_LEGEND: Final = "{{consumer_group}} {{topic}}"

ROWS: Final[dict[str, tuple[Panel, ...]]] = {
    "Overview": (
        Panel(
            "Conditions of readiness",
            "short",
            "0 for a condition that does not hold: ask /readyz for the reason.",
            (Query("min by (node_id, condition) (rocketbroker_ready{%})", "{{node_id}} {{condition}}"),),
        ),
        Panel(
            "Messages in and out",
            "cps",
            "Messages of producers, and those that groups got.",
            (
                Query(f"sum(rate(rocketmq_messages_in_total{{%}}[{_RATE}]))", "in"),
                Query(f"sum(rate(rocketmq_messages_out_total{{%}}[{_RATE}]))", "out"),
            ),
        ),
        Panel(
            "Bytes in and out",
            "Bps",
            "The same in bytes.",
            (
                Query(f"sum(rate(rocketmq_throughput_in_total{{%}}[{_RATE}]))", "in"),
                Query(f"sum(rate(rocketmq_throughput_out_total{{%}}[{_RATE}]))", "out"),
            ),
        ),
    ),
    "Topics and requests": (
        Panel(
            "Messages in by topic",
            "cps",
            "The ten topics with most messages.",
            (_rate("rocketmq_messages_in_total", "topic", "{{topic}}"),),
        ),
        Panel(
            "Messages out by group",
            "cps",
            "The ten groups with most messages.",
            (_rate("rocketmq_messages_out_total", _GROUP, _GROUP_LEGEND),),
        ),
        Panel(
            "Time of sends",
            "ms",
            "From the read to the answer. Worry when p99 grows: disk, slaves or CPU are slow.",
            (
                _quantile(0.5, "rocketmq_rpc_latency_milliseconds", "p50 {{node_id}}", _SENDS),
                _quantile(0.99, "rocketmq_rpc_latency_milliseconds", "p99 {{node_id}}", _SENDS),
            ),
        ),
        Panel(
            "Requests",
            "reqps",
            "Requests of clients, brokers and tools by code.",
            (_rate("rocketmq_rpc_latency_milliseconds_count", "request_code", "{{request_code}}"),),
        ),
        Panel(
            "Refused requests",
            "reqps",
            "Worry when system_busy grows: the disk or slaves are slow, or a limit is reached.",
            (_rate("rocketbroker_refused_requests_total", "request_code, cause", "{{request_code}}: {{cause}}"),),
        ),
        Panel(
            "Topics and groups",
            "short",
            "System topics and groups included.",
            (
                Query("max by (node_id) (rocketmq_topic_number{%})", "topics {{node_id}}"),
                Query("max by (node_id) (rocketmq_consumer_group_number{%})", "groups {{node_id}}"),
            ),
        ),
    ),
    "Groups": (
        Panel(
            "Lag",
            "short",
            "Messages that a group has not consumed. Worry when it grows for minutes.",
            (_of_nodes("rocketmq_consumer_lag_messages", _GROUP, _GROUP_LEGEND, ", is_retry"),),
        ),
        Panel(
            "Age of the oldest message not consumed",
            "ms",
            "Worry when it grows: consumers hang, or are too few.",
            (Query(f"topk(10, max by ({_GROUP}) (rocketmq_consumer_lag_latency_milliseconds{{%}}))", _GROUP_LEGEND),),
        ),
        Panel(
            "Lag by queue",
            "short",
            "One queue that grows alone has a consumer that hangs.",
            (
                _of_nodes(
                    "rocketbroker_consumer_queue_lag_messages",
                    f"{_GROUP}, queue_id",
                    f"{_GROUP_LEGEND} {{{{queue_id}}}}",
                    ", is_retry",
                ),
            ),
        ),
        Panel(
            "Messages in flight and ready",
            "short",
            "Pulled or popped and not consumed, and not pulled. Many in flight: consumers work slowly.",
            (
                _of_nodes(
                    "rocketmq_consumer_inflight_messages", "consumer_group", "in flight {{consumer_group}}", _TOPICS
                ),
                _of_nodes("rocketmq_consumer_ready_messages", "consumer_group", "ready {{consumer_group}}", _TOPICS),
            ),
        ),
        Panel(
            "Clients",
            "short",
            "Consumers and producers. Worry when a group has none.",
            (
                _of_nodes(
                    "rocketmq_consumer_connections",
                    "consumer_group",
                    "{{consumer_group}}",
                    ", language, version, consume_mode",
                ),
                _of_nodes("rocketmq_producer_connections", "language", "producers {{language}}", ", version"),
            ),
        ),
        Panel(
            "Dead letters and conflicts",
            "cps",
            "Messages that used up their retries, and groups whose clients began to disagree.",
            (
                _rate("rocketmq_send_to_dlq_messages_total", "consumer_group", "dead letters {{consumer_group}}"),
                _rate("rocketbroker_subscription_conflicts_total", "node_id", "conflicts {{node_id}}"),
            ),
        ),
    ),
    "Store and replicas": (
        Panel(
            "Used share of the disk",
            "percentunit",
            "Sends are rejected above diskSpaceWarningLevelRatio.",
            (Query("max by (node_id) (rocketbroker_store_disk_used_ratio{%})", "{{node_id}}"),),
        ),
        Panel(
            "Bytes not on disk, and not in queues",
            "bytes",
            "Worry when they do not return to near 0.",
            (
                _max("rocketmq_storage_flush_behind_bytes", "node_id", "flush {{node_id}}"),
                _max("rocketmq_storage_dispatch_behind_bytes", "node_id", "dispatch {{node_id}}"),
            ),
        ),
        Panel(
            "From store to acknowledgement",
            "s",
            "Sends that wait for disk or slaves. Worry when p99 grows.",
            (_quantile(0.99, "rocketbroker_store_to_acknowledge_seconds", "p99 {{node_id}}"),),
        ),
        Panel(
            "Lag of slaves",
            "bytes",
            "Bytes of the log that a slave lacks.",
            (_sum("rocketbroker_replication_lag_bytes", "node_id, slave", "{{node_id}} {{slave}}"),),
        ),
        Panel(
            "Slaves",
            "short",
            "Slaves that are connected, and slaves that follow. Worry when one is missing.",
            (
                _sum("rocketbroker_replication_slaves", "node_id", "slaves of {{node_id}}"),
                Query("min by (node_id) (rocketbroker_replication_connected{%})", "{{node_id}} follows"),
            ),
        ),
        Panel(
            "Failed syncs and damaged messages",
            "short",
            "Any is a reason to look at the disk.",
            (
                _sum("rocketbroker_sync_errors_total", "node_id", "syncs {{node_id}}"),
                _sum("rocketbroker_damaged_messages_total", "node_id", "damaged {{node_id}}"),
            ),
        ),
    ),
    "Transactions, timer and POP": (
        Panel(
            "Transactions",
            "cps",
            "Ends of transactions.",
            (
                _rate("rocketmq_commit_messages_total", "topic", "committed {{topic}}"),
                _rate("rocketmq_rollback_messages_total", "topic", "rolled back {{topic}}"),
            ),
        ),
        Panel(
            "Open transactions",
            "short",
            "Worry when they grow: producers do not end them, and do not answer checks.",
            (_of_nodes("rocketmq_half_messages", "topic", "{{topic}}"),),
        ),
        Panel(
            "Timer messages",
            "ms",
            "By how much delayed messages are late. Worry above some seconds.",
            (
                _max("rocketmq_timer_dequeue_latency_milliseconds", "node_id", "due {{node_id}}"),
                _max("rocketmq_timer_enqueue_latency_milliseconds", "node_id", "not read {{node_id}}"),
            ),
        ),
        Panel(
            "Waiting messages",
            "short",
            "Timer messages that wait, and messages that were popped and not acknowledged.",
            (
                _max("rocketbroker_timing_messages", "node_id", "timer {{node_id}}"),
                _max("rocketmq_pop_checkpoint_buffer_size", "node_id", "POP {{node_id}}"),
            ),
        ),
    ),
    "Proxies and gRPC ports": (
        Panel(
            "gRPC calls",
            "reqps",
            "By method and code of the reply. Worry when codes other than ok and message_not_found grow.",
            (_rate_of_all("rocketbroker_grpc_call_seconds_count", "method, code", "{{method}} {{code}}"),),
        ),
        Panel(
            "Time of gRPC calls",
            "s",
            "The 99th percentile by method; receives wait for messages.",
            (
                Query(
                    "topk(10, histogram_quantile(0.99, sum by (le, method) "
                    f"(rate(rocketbroker_grpc_call_seconds_bucket[{_RATE}]))))",
                    "{{method}}",
                ),
            ),
        ),
        Panel(
            "Open gRPC calls, and proxies",
            "short",
            "Worry near grpcMaxOpenCalls, or when a proxy is missing.",
            (
                Query("sum by (node_id) (rocketbroker_grpc_open_calls)", "open calls {{node_id}}"),
                Query("sum by (node_id, proxy_mode) (rocketmq_proxy_up)", "{{node_id}} ({{proxy_mode}})"),
            ),
        ),
    ),
    "Process and name servers": (
        Panel(
            "Longest hold of the event loop",
            "s",
            "Worry above 0.5: slow requests, a slow disk, or a machine without CPU.",
            (Query("max by (node_id) (rocketbroker_event_loop_longest_hold_seconds)", "{{node_id}}"),),
        ),
        Panel(
            "Lag of the event loop",
            "s",
            "The 99th percentile.",
            (
                Query(
                    "histogram_quantile(0.99, sum by (le, node_id) "
                    f"(rate(rocketbroker_event_loop_lag_seconds_bucket[{_RATE}])))",
                    "{{node_id}}",
                ),
            ),
        ),
        Panel(
            "Brokers of name servers",
            "short",
            "Registered brokers, slaves included. Worry when one is missing, or when name servers differ.",
            (Query("sum by (node_id) (rocketbroker_namesrv_brokers)", "{{node_id}}"),),
        ),
    ),
}


def expression_of(query: Query) -> str:
    """Return the expression of a query with the variables of the board."""
    return query.expression.replace("{%", "{" + _CHOSEN)


def board(title: str, uid: str) -> dict[str, Any]:
    """Return the board as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for row, content in ROWS.items():
        panels.append(
            {
                "id": len(panels) + 1,
                "type": "row",
                "title": row,
                "collapsed": False,
                "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
                "panels": [],
            }
        )
        y += 1
        for index, panel in enumerate(content):
            place = {
                "x": index % _COLUMNS * _WIDTH,
                "y": y + index // _COLUMNS * _HEIGHT,
                "w": _WIDTH,
                "h": _HEIGHT,
            }
            panels.append(_panel(len(panels) + 1, panel, place))
        y += -(-len(content) // _COLUMNS) * _HEIGHT
    return {
        "uid": uid,
        "title": title,
        "tags": ["rocketmq"],
        "timezone": "browser",
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": _variables()},
        "panels": panels,
    }


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.help,
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _DATASOURCE,
                "expr": expression_of(query),
                "legendFormat": query.legend,
            }
            for index, query in enumerate(panel.queries)
        ],
    }


def _variables() -> list[dict[str, Any]]:
    chosen = [
        ("cluster", "label_values(rocketmq_topic_number, cluster)"),
        ("node", 'label_values(rocketmq_topic_number{cluster=~"$cluster"}, node_id)'),
    ]
    return [
        {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        *(
            {
                "name": name,
                "label": name.capitalize(),
                "type": "query",
                "datasource": _DATASOURCE,
                "query": query,
                "refresh": 2,
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
                "current": {"text": "All", "value": "$__all"},
            }
            for name, query in chosen
        ),
    ]
