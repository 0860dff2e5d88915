"""Metrics as their sources yield them, before an exporter writes them.

A report may have samples of ten thousand topics, which take a good part of a second to read and to write. So samples
come from generators, and each exporter works on some at a time: the event loop serves others in between.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from rocketbroker.common.histogram import Histogram

#: Lines or data points that an exporter makes before others run, and steps of a generator: some milliseconds.
SLICE: Final = 1000
#: The label of what exceeds ``metricsOtelCardinalityLimit``, as OpenTelemetry has it.
OVERFLOW: Final = {"otel_metric_overflow": "true"}

Kind = Literal["gauge", "counter", "histogram"]
Labels = Mapping[str, str]
Value = float | Histogram
#: ``None`` stands for a step of work without a sample.
Samples = Iterable[tuple[Labels, Value] | None]

GAUGE_HELP: Final = "default view for gauge."
COUNTER_HELP: Final = "default view for counter."


class Family(NamedTuple):
    """All samples of one metric under its Prometheus name; one without samples is not exported."""

    name: str
    kind: Kind
    help: str
    samples: Samples


class Block(NamedTuple):
    """Metrics of one instrumentation scope of OpenTelemetry; an empty ``scope`` is no label in Prometheus's text."""

    scope: str
    families: Iterable[Family]


class Report(NamedTuple):
    """All metrics of a server at one time.

    Attributes:
        labels: labels of every sample; those of a metric win.
        limit: most label sets of a metric (metricsOtelCardinalityLimit).
        blocks: the metrics.
    """

    labels: Labels
    limit: int
    blocks: list[Block]


def gauge(name: str, samples: Samples, text: str = GAUGE_HELP) -> Family:
    """Return a metric that goes up and down."""
    return Family(name, "gauge", text, samples)


def counter(name: str, samples: Samples, text: str = COUNTER_HELP) -> Family:
    """Return a metric that only grows; its name ends in ``_total``."""
    return Family(name, "counter", text, samples)


def histogram(name: str, samples: Samples, text: str) -> Family:
    """Return a distribution."""
    return Family(name, "histogram", text, samples)


def limited(family: Family, limit: int) -> Iterator[tuple[Labels, Value] | None]:
    """Yield samples up to the limit, and the sum of all others as the last."""
    count = 0
    rest: Value | None = None
    for sample in family.samples:
        count += sample is not None
        if sample is None or count < limit:
            yield sample
            continue
        value = sample[1]
        if isinstance(value, Histogram):
            if not isinstance(rest, Histogram):
                rest = Histogram(value.bounds)
            rest.take(value)
        elif isinstance(rest, float | int) and family.kind == "counter":
            rest += value
        else:
            rest = value
        yield None
    if rest is not None:
        yield OVERFLOW, rest
