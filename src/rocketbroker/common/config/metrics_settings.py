"""Settings of metrics and health, which a broker, a name server and a proxy have."""

import re
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator

from rocketbroker.common.config.fields import (
    DAY_MS,
    HOUR_MS,
    PORT_MAX,
    BindAddress,
    ConfigModel,
    Flag,
    Line,
    Text,
    Trait,
    Whole,
    is_address,
    millis,
    setting,
    whole,
)
from rocketbroker.common.config.transport_config import WHITE_LIST, WhiteList

_EXPORTERS: Final = ("DISABLE", "PROM", "OTLP_GRPC", "LOG")
_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
# Labels of buckets, quantiles and scopes.
_RESERVED_LABELS: Final = frozenset({"le", "quantile", "otel_scope_name", "otel_scope_version", "otel_metric_overflow"})
_HEADER_NAME = re.compile(r"[0-9a-z_.-]+\Z")
_TLS: Final = "https://"
_PLAIN: Final = "http://"


class OtlpTarget(NamedTuple):
    """A collector: ``host:port``, and true for TLS."""

    address: str
    is_tls: bool


def parse_target(value: str) -> OtlpTarget:
    """Return the collector of ``[http[s]://]host:port``; without a scheme it is https, as in RocketMQ.

    Raises:
        ValueError: It is no address.
    """
    address = value.removeprefix(_PLAIN).removeprefix(_TLS).rstrip("/")
    if not is_address(address):
        raise ValueError(f"{value!r} is no address of a collector")
    return OtlpTarget(address, not value.startswith(_PLAIN))


def _check_target(value: str) -> str:
    if value:
        parse_target(value)
    return value


def parse_headers(value: str) -> dict[str, str]:
    """Return the headers of a list of ``name:value`` joined by commas; names of metadata have small letters.

    Raises:
        ValueError: A pair has no colon, or its name is not one of a header.
    """
    headers = {}
    for pair in filter(None, map(str.strip, value.split(","))):
        name, colon, text = pair.partition(":")
        if not colon or not _HEADER_NAME.match(name.lower()) or name.endswith("-bin") or not text.isascii():
            raise ValueError(f"{pair!r} is no pair of a header's name and its value")
        headers[name.lower()] = text.strip()
    return headers


def _check_headers(value: str) -> str:
    parse_headers(value)
    return value


def _check_exporter(value: str) -> str:
    if value not in _EXPORTERS:
        raise ValueError("not an exporter")
    return value


def parse_labels(value: str) -> dict[str, str]:
    """Return the labels of a list of ``name:value`` joined by commas.

    Raises:
        ValueError: A pair has no colon, or its name is not one of a label, or one that samples have already.
    """
    labels = {}
    for pair in filter(None, map(str.strip, value.split(","))):
        name, colon, text = pair.partition(":")
        if not colon or not _LABEL_NAME.match(name):
            raise ValueError(f"{pair!r} is no pair of a label's name and its value")
        if name in _RESERVED_LABELS or name.startswith("__"):
            raise ValueError(f"rejected: Prometheus needs the label {name} for itself; choose another name")
        labels[name] = text
    return labels


def _check_labels(value: str) -> str:
    parse_labels(value)
    return value


ExporterType = Annotated[Text, AfterValidator(_check_exporter)]
Labels = Annotated[Line, AfterValidator(_check_labels)]


Headers = Annotated[Line, AfterValidator(_check_headers)]
Target = Annotated[Text, AfterValidator(_check_target)]


class MetricsPortSettings(ConfigModel):
    """Metrics for Prometheus, a collector of OpenTelemetry or the log, and health over HTTP."""

    metrics_exporter_type: ExporterType = setting(
        "DISABLE",
        "PROM serves /metrics, /healthz and /readyz on metricsPromExporterPort, and needs the extra metrics. OTLP_GRPC "
        "sends metrics to metricsGrpcExporterTarget, and needs the extra otlp. LOG logs them.",
        Trait(takes="DISABLE, PROM, OTLP_GRPC or LOG"),
    )
    metrics_prom_exporter_port: Whole = setting(
        5557, "HTTP port of metrics and health, 0 for a free one.", whole(0, PORT_MAX)
    )
    metrics_prom_exporter_host: BindAddress = setting(
        "",
        "Address that this port listens on; empty means bindAddress.",
        Trait(takes="an IP address or host name of this machine"),
    )
    metrics_white_list: WhiteList = setting(
        "",
        "Peers on other machines that may read metrics in protected mode, beside those of adminWhiteList and "
        "brokerWhiteList.",
        WHITE_LIST,
    )
    metrics_label: Labels = setting(
        "", "Further labels of every metric.", Trait(takes="name:value, several joined by ','")
    )
    metrics_in_delta: Flag = setting(
        False,
        "Add the label aggregation=delta. OTLP_GRPC and LOG then export what was counted since the last export; PROM "
        "counts from the start nevertheless, as in RocketMQ.",
    )
    metrics_grpc_exporter_target: Target = setting(
        "",
        "Collector of OTLP_GRPC; http:// means plain text, and https:// or nothing TLS.",
        Trait(takes="[http[s]://]host:port"),
    )
    metrics_grpc_exporter_header: Headers = setting(
        "",
        "Headers of each call to the collector, such as a credential.",
        Trait(secret=True, takes="name:value, several joined by ','"),
    )
    metric_grpc_exporter_time_out_in_mills: Whole = setting(
        3_000, "Longest time of a call to the collector.", millis(1, HOUR_MS)
    )
    metric_grpc_exporter_interval_in_mills: Whole = setting(
        60_000, "Time between two exports of OTLP_GRPC.", millis(100, DAY_MS)
    )
    metric_logging_exporter_interval_in_mills: Whole = setting(
        10_000, "Time between two exports of LOG.", millis(100, DAY_MS)
    )
    metrics_export_batch_max_data_points: Whole = setting(
        1_000, "Maximum number of data points that OTLP_GRPC sends at a time.", whole(1, 100_000, hot=True)
    )
