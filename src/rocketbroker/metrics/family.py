"""Metrics as their sources yield them, before an exporter writes them.

A report may have samples of ten thousand topics, which take a good part of a second to read and to write. So samples
come from generators, and each exporter works on some at a time: the event loop serves others in between.
"""

from collections.abc import Iterable, Mapping
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
        overflow: what label sets beyond the limit counted; ``None`` to count them in this report alone.
        instance: name of the process, beside ``labels``: a master and its slaves share those.
    """

    labels: Labels
    limit: int
    blocks: list[Block]
    overflow: "Overflow | None" = None
    instance: str = ""


def gauge(name: str, samples: Samples, text: str = GAUGE_HELP) -> Family:
    """Return a metric that goes up and down."""
    return Family(name, "gauge", text, samples)


def counter(name: str, samples: Samples, text: str = COUNTER_HELP) -> Family:
    """Return a metric that only grows; its name ends in ``_total``."""
    return Family(name, "counter", text, samples)


def histogram(name: str, samples: Samples, text: str) -> Family:
    """Return a distribution."""
    return Family(name, "histogram", text, samples)


_LabelKey = tuple[tuple[str, str], ...]


def label_key(labels: Labels) -> _LabelKey:
    """Return labels as a key of a table."""
    return tuple(labels.items())


class _Rest:
    """Label sets of one counter or distribution that have samples of their own, and the sum of all others.

    The sum only grows, though label sets may end and begin again: it is made of what each of them added.
    """

    def __init__(self, own: set[_LabelKey]) -> None:
        self.own = own
        self.total: Value | None = None
        self._last: dict[_LabelKey, float | list[int]] = {}
        self._sums: dict[_LabelKey, float] = {}

    def has(self, key: _LabelKey) -> bool:
        return key in self._last

    def add(self, key: _LabelKey, value: Value) -> None:
        last = self._last.get(key)
        if isinstance(value, Histogram):
            if not isinstance(self.total, Histogram):
                self.total = Histogram(value.bounds)
            before = last if isinstance(last, list) else [0] * len(value.buckets)
            added = [now - then for now, then in zip(value.buckets, before, strict=True)]
            sum_before = self._sums.get(key, 0)
            if min(added) < 0:
                added, sum_before = list(value.buckets), 0
            difference = Histogram(value.bounds)
            difference.buckets, difference.count, difference.sum = added, sum(added), value.sum - sum_before
            self.total.take(difference)
            self._last[key], self._sums[key] = list(value.buckets), value.sum
            return
        number = last if isinstance(last, float | int) and last <= value else 0
        self.total = (self.total if isinstance(self.total, float | int) else 0) + value - number
        self._last[key] = value

    def keep(self, seen: set[_LabelKey]) -> None:
        """Forget label sets that ended, so that others get their places."""
        self.own &= seen
        for key in self._last.keys() - seen:
            del self._last[key]
            self._sums.pop(key, None)


class Overflow:
    """Sums of the label sets beyond the limit, from one report of a server to the next.

    A label set has a sample of its own, or is part of the sum, for as long as it exists. If that changed with the order
    of samples, the sum would fall, which readers take for a restart.
    """

    def __init__(self) -> None:
        self._rests: dict[str, _Rest] = {}

    def limit(self, family: Family, limit: int) -> Samples:
        """Yield samples up to the limit, and the sum of all others as the last."""
        rest = self._rests.get(family.name)
        first: list[Labels] = []
        seen: set[_LabelKey] = set()
        for sample in family.samples:
            if sample is None:
                yield None
                continue
            labels, value = sample
            if rest is None:
                if len(first) + 1 < limit:
                    first.append(labels)
                    yield sample
                    continue
                seen = set(map(label_key, first))
                rest = self._rests[family.name] = _Rest(set(seen))
            key = label_key(labels)
            seen.add(key)
            if key in rest.own:
                yield sample
            elif len(rest.own) + 1 < limit and not rest.has(key):
                rest.own.add(key)
                yield sample
            else:
                rest.add(key, value)
                yield None
        if rest is not None:
            rest.keep(seen)
            if rest.total is not None:
                yield OVERFLOW, rest.total


def samples_of(family: Family, report: Report) -> Samples:
    """Yield samples of a report's family up to the limit, and one for all others; of a gauge it has the last value."""
    if family.kind != "gauge":
        yield from (report.overflow or Overflow()).limit(family, report.limit)
        return
    count, last = 0, None
    for sample in family.samples:
        count += sample is not None
        if sample is None or count < report.limit:
            yield sample
        else:
            last = sample[1]
            yield None
    if last is not None:
        yield OVERFLOW, last
