"""Message traces as RocketMQ stores them (org.apache.rocketmq.client.trace.TraceDataEncoder).

trace := kind, (0x01, field)*, 0x02

The kinds and their fields are those of the classes below, in order. Times are in ms.
"""

from collections.abc import Callable
from typing import NamedTuple

_FIELD = "\x01"
_END = "\x02"


class PubTrace(NamedTuple):
    """A message was sent."""

    time_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    body_length: int
    cost_ms: int
    msg_type: int
    offset_msg_id: str
    success: bool


class SubBeforeTrace(NamedTuple):
    """The consumption of a message begins."""

    time_ms: int
    region_id: str
    group: str
    request_id: str
    msg_id: str
    retry_times: int
    keys: str


class SubAfterTrace(NamedTuple):
    """The consumption of a message has ended; ``context_code`` is the ordinal of a ConsumeReturnType."""

    request_id: str
    msg_id: str
    cost_ms: int
    success: bool
    keys: str
    context_code: int
    time_ms: int
    group: str


class EndTransactionTrace(NamedTuple):
    """A transaction was ended."""

    time_ms: int
    region_id: str
    group: str
    topic: str
    msg_id: str
    tags: str
    keys: str
    store_host: str
    msg_type: int
    transaction_id: str
    state: str
    from_check: bool


Trace = PubTrace | SubBeforeTrace | SubAfterTrace | EndTransactionTrace


def encode_trace(trace: Trace) -> str:
    """Return the text of a trace."""
    kind = type(trace).__name__.removesuffix("Trace")
    return _FIELD.join([kind, *map(_text, trace)]) + _END


def trace_keys(trace: Trace) -> list[str]:
    """Return the keys that a trace is found by: the message's id, or the first id of a batch, and its keys."""
    return [trace.msg_id.partition(",")[0], *trace.keys.split()]


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def decode_traces(text: str) -> list[Trace]:
    """Return the traces in the body of a message of the trace topic.

    Traces of other kinds, with too few fields or with a wrong number are left out: clients of any version write here.
    Fields that older clients lack at the end are empty.
    """
    found = (_decode(part.split(_FIELD)) for part in text.split(_END) if part)
    return [trace for trace in found if trace is not None]


def _decode(fields: list[str]) -> Trace | None:
    kind, *values = fields
    form = _FORMS.get(kind)
    if form is None or len(values) < form.fewest:
        return None
    types = form.make.__annotations__.values()
    padded = [*values, *[""] * (len(types) - len(values))]
    try:
        return form.make(*(_value(text, of) for text, of in zip(padded, types, strict=False)))
    except ValueError:
        return None


def _value(text: str, of: type) -> str | int | bool:
    if of is bool:
        return text == "true"
    return int(text or 0) if of is int else text


class _Form(NamedTuple):
    """A kind of trace, and the least number of its fields."""

    make: Callable[..., Trace]
    fewest: int


# Clients before 4.8 lack the time and the group of a SubAfter.
_FORMS = {
    "Pub": _Form(PubTrace, 12),
    "SubBefore": _Form(SubBeforeTrace, 7),
    "SubAfter": _Form(SubAfterTrace, 5),
    "EndTransaction": _Form(EndTransactionTrace, 12),
}
