"""Prometheus's text format, version 0.0.4, in slices.

prometheus-client takes 12 to 20 µs for a line, most of it for checks of names that are constants here. A line takes one
or two here: the labels that all samples share are written once a page, and those of a histogram once for its buckets.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from typing import Final

from rocketbroker.common.histogram import Histogram
from rocketbroker.metrics.family import SLICE, Family, Labels, Report, Value, samples_of

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_INFINITE: Final = "+Inf"
_TARGET_INFO: Final = b"# TYPE target_info gauge\ntarget_info 1\n"


async def write(report: Report) -> AsyncIterator[bytes]:
    """Yield a page in slices, and let others run after each."""
    for scope, families in report.blocks:
        common = {**report.labels, "otel_scope_name": scope} if scope else report.labels
        shared = _label_text(common)
        for family in families:
            lines = [f"# HELP {family.name} {_help(family.help)}\n# TYPE {family.name} {family.kind}\n"]
            steps, is_empty = 0, True
            for step in samples_of(family, report):
                steps += 1
                if step is not None:
                    is_empty = False
                    own, value = step
                    text = shared if own.keys().isdisjoint(common) else _label_text(_without(common, own))
                    _add_lines(lines, family, _join(text, _label_text(own)), value)
                if steps + len(lines) >= SLICE:
                    if not is_empty:
                        yield _encode(lines)
                        lines = []
                    steps = 0
                    await asyncio.sleep(0)
            if lines and not is_empty:
                yield _encode(lines)
                await asyncio.sleep(0)
    if any(scope for scope, _ in report.blocks):
        yield _TARGET_INFO


def _add_lines(lines: list[str], family: Family, labels: str, value: Value) -> None:
    name = family.name
    braced = f"{{{labels}}}" if labels else ""
    if not isinstance(value, Histogram):
        lines.append(f"{name}{braced} {_number(value)}\n")
        return
    start, count = f"{name}_bucket{{{labels}{',' if labels else ''}", 0
    for bound, number in zip(_bounds(tuple(value.bounds)), value.buckets, strict=True):
        count += number
        lines.append(f"{start}{bound}{count}.0\n")
    lines.append(f"{name}_count{braced} {value.count}.0\n{name}_sum{braced} {_number(value.sum)}\n")


@lru_cache(maxsize=64)
def _bounds(bounds: Sequence[float]) -> list[str]:
    # As Java writes them: Go's form of a million is another label.
    return [f'le="{bound}"}} ' for bound in (*(str(float(bound)) for bound in bounds), _INFINITE)]


def _number(value: float) -> str:
    # Parsers take the forms of infinity and NaN in any case.
    return f"{value}.0" if isinstance(value, int) else repr(value)


def _without(common: Labels, own: Labels) -> Labels:
    return {name: value for name, value in common.items() if name not in own}


def _join(first: str, second: str) -> str:
    return f"{first},{second}" if first and second else first or second


def _label_text(labels: Labels) -> str:
    return ",".join([f'{name}="{_escape(value)}"' for name, value in labels.items()])


def _escape(value: str) -> str:
    if "\\" in value or '"' in value or "\n" in value:
        return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return value


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _encode(lines: list[str]) -> bytes:
    # A label may hold half of a surrogate pair, which a client sent: it is no UTF-8, and the page must be.
    return "".join(lines).encode("utf-8", "replace")
