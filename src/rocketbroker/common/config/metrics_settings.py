"""Settings of the HTTP port of metrics and health, which a broker and a name server have."""

import re
from typing import Annotated

from pydantic import AfterValidator

from rocketbroker.common.config.fields import (
    PORT_MAX,
    BindAddress,
    ConfigModel,
    Line,
    Text,
    Trait,
    Whole,
    setting,
    whole,
)
from rocketbroker.common.config.transport_config import WHITE_LIST, WhiteList

_NO_EXPORTER = {
    "LOG": "reports are not written to the log",
    "OTLP_GRPC": "the exporter that sends them by OTLP is missing",
}
_LABEL_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def _check_exporter(value: str) -> str:
    if value in _NO_EXPORTER:
        raise ValueError(
            f"rejected: {_NO_EXPORTER[value]} in this version; set metricsExporterType=PROM and let a collector read "
            "/metrics"
        )
    if value not in {"DISABLE", "PROM"}:
        raise ValueError("not an exporter")
    return value


def parse_labels(value: str) -> dict[str, str]:
    """Return the labels of a list of ``name:value`` joined by commas.

    Raises:
        ValueError: A pair has no colon, or its name is not one of a label.
    """
    labels = {}
    for pair in filter(None, map(str.strip, value.split(","))):
        name, colon, text = pair.partition(":")
        if not colon or not _LABEL_NAME.match(name):
            raise ValueError(f"{pair!r} is no pair of a label's name and its value")
        labels[name] = text
    return labels


def _check_labels(value: str) -> str:
    parse_labels(value)
    return value


ExporterType = Annotated[Text, AfterValidator(_check_exporter)]
Labels = Annotated[Line, AfterValidator(_check_labels)]


class MetricsPortSettings(ConfigModel):
    """Metrics and health over HTTP, for Prometheus and for those who watch the process."""

    metrics_exporter_type: ExporterType = setting(
        "DISABLE",
        "PROM serves /metrics, /healthz and /readyz on metricsPromExporterPort; needs the extra metrics. LOG and "
        "OTLP_GRPC are rejected.",
        Trait(takes="DISABLE or PROM"),
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
