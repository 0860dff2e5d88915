"""Prometheus's text format, in slices: a page may have samples of ten thousand topics.

A line costs some 15 µs, so that the page of a large broker takes seconds. The event loop serves others after each
slice. So samples come from generators: work that a sample needs is done when its slice is.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import Metric
from prometheus_client.samples import Sample

from rocketbroker.common.histogram import Histogram

CONTENT_TYPE: Final = CONTENT_TYPE_LATEST
#: Lines of a slice, and steps of a generator: some 3 ms.
SLICE: Final = 200
#: The label of what exceeds ``metricsOtelCardinalityLimit``, as OpenTelemetry has it.
OVERFLOW: Final = {"otel_metric_overflow": "true"}
_INFINITE: Final = "+Inf"

Kind = Literal["gauge", "counter", "histogram"]
Labels = Mapping[str, str]
Value = float | Histogram
#: ``None`` stands for a step of work without a sample.
Samples = Iterable[tuple[Labels, Value] | None]

GAUGE_HELP: Final = "default view for gauge."
COUNTER_HELP: Final = "default view for counter."


class Family(NamedTuple):
    """All samples of one metric; one without samples is not printed."""

    name: str
    kind: Kind
    help: str
    samples: Samples


def gauge(name: str, samples: Samples, text: str = GAUGE_HELP) -> Family:
    """Return a metric that goes up and down."""
    return Family(name, "gauge", text, samples)


def counter(name: str, samples: Samples, text: str = COUNTER_HELP) -> Family:
    """Return a metric that only grows; its name ends in ``_total``."""
    return Family(name, "counter", text, samples)


def histogram(name: str, samples: Samples, text: str) -> Family:
    """Return a distribution."""
    return Family(name, "histogram", text, samples)


async def write(families: Iterable[Family], common: Labels, limit: int) -> AsyncIterator[bytes]:
    """Yield a page in slices, and let others run after each.

    Args:
        families: the metrics.
        common: labels of every sample; those of a metric win.
        limit: most label sets of a metric.
    """
    for family in families:
        lines: list[Sample] = []
        steps, is_first = 0, True
        for step in _limited(family, limit):
            steps += 1
            if step is not None:
                lines += _lines(family.name, {**common, **step[0]}, step[1])
            if steps + len(lines) >= SLICE:
                if lines:
                    yield _text(family, lines, is_first=is_first)
                    is_first = False
                lines, steps = [], 0
                await asyncio.sleep(0)
        if lines:
            yield _text(family, lines, is_first=is_first)
            await asyncio.sleep(0)


def _limited(family: Family, limit: int) -> Iterator[tuple[Labels, Value] | None]:
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


def _lines(name: str, labels: dict[str, str], value: Value) -> list[Sample]:
    if not isinstance(value, Histogram):
        return [Sample(name, labels, value)]
    lines, count = [], 0
    # As Java writes them: Go's form of a million is another label.
    bounds = [*(str(float(bound)) for bound in value.bounds), _INFINITE]
    for bound, number in zip(bounds, value.buckets, strict=True):
        count += number
        lines.append(Sample(f"{name}_bucket", {**labels, "le": bound}, count))
    return [*lines, Sample(f"{name}_count", labels, value.count), Sample(f"{name}_sum", labels, value.sum)]


class _One:
    """A registry of one metric."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def _text(family: Family, lines: list[Sample], *, is_first: bool) -> bytes:
    # The writer adds the ending of a counter's name to TYPE again.
    name = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    metric = Metric(name, family.help, family.kind)
    metric.samples = lines
    text = generate_latest(_One(metric))
    # HELP and TYPE stand once before all samples.
    return text if is_first else text.split(b"\n", 2)[2]
