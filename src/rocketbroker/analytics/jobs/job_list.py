"""Jobs that make a table from the messages of stores; a job's file is imported when it runs.

Here stands what commands and documentation are made from. Nothing of Spark is imported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of a job that its user may set.

    Attributes:
        name: as the function calls it; on the command line with dashes.
        default: its type is that of the parameter; a tuple takes the option several times.
        help: what it means, with its unit.
        least: the smallest value of a number.
    """

    name: str
    default: Any
    help: str
    least: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job.

    Attributes:
        name: its sub-command.
        module: its file in this package.
        function: the function in it: takes data frames in the order of ``reads``, and options by name.
        summary: what it does in one line.
        reads: the tables and columns that it is given, ``messages`` first; all columns where there are none.
        order: columns that its rows are sorted by; "-" before a name for descending.
        options: what may be set.
        needs_now: whether it takes the time now, in ms, as ``now_ms``.
    """

    name: str
    module: str
    function: str
    summary: str
    reads: dict[str, tuple[str, ...]]
    order: tuple[str, ...]
    options: tuple[Option, ...] = ()
    needs_now: bool = False

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        found: Callable[..., Any] = getattr(import_module(f"{__package__}.{self.module}"), self.function)
        return found


#: Which percentiles jobs give.
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_PERCENTILES: Final = Option("percentiles", PERCENTILES, "A percentile to give, 0 to 100; may be repeated.", 0)
_TIMES: Final = ("broker", "topic", "store_timestamp", "born_timestamp")

JOBS: Final[dict[str, Job]] = {
    job.name: job
    for job in (
        Job(
            "traffic",
            "traffic",
            "traffic",
            "Messages and bytes of each topic by time.",
            {"messages": ("broker", "topic", "store_timestamp", "size")},
            ("from_time", "broker", "topic"),
            (Option("interval", 60, "Seconds of an interval.", 1),),
        ),
        Job(
            "sizes",
            "sizes",
            "sizes",
            "How large the messages of each topic are, in bytes.",
            {"messages": ("broker", "topic", "size")},
            ("broker", "topic"),
            (_PERCENTILES,),
        ),
        Job(
            "hot-keys",
            "skew",
            "hot_keys",
            "The keys that most messages of each topic have.",
            {"messages": ("broker", "topic", "keys", "size")},
            ("broker", "topic", "rank"),
            (Option("top", 20, "So many keys of each topic.", 1),),
        ),
        Job(
            "skew",
            "skew",
            "skew",
            "How evenly the messages of each topic lie in its queues.",
            {
                "messages": ("broker", "topic", "queue_id", "size"),
                "topics": ("broker", "topic", "write_queue_nums"),
            },
            ("broker", "topic", "queue_id"),
        ),
        Job(
            "delays",
            "delays",
            "delays",
            "How long messages took from the producer to the log, in ms.",
            {"messages": _TIMES},
            ("broker", "topic"),
            (_PERCENTILES,),
        ),
        Job(
            "retry-delays",
            "delays",
            "retry_delays",
            "How old messages are at each retry, in ms.",
            {"messages": (*_TIMES, "reconsume_times", "msg_id", "properties")},
            ("group_name", "reconsume_times"),
            (_PERCENTILES,),
        ),
        Job(
            "retries",
            "retries",
            "retries",
            "Retries and dead letters by reason, and their age.",
            {
                "messages": (
                    "broker",
                    "topic",
                    "queue_id",
                    "queue_offset",
                    "store_timestamp",
                    "reconsume_times",
                    "properties",
                ),
                "subscription_groups": ("broker", "group_name", "retry_max_times"),
                "consumer_offsets": ("broker", "group_name", "topic", "queue_id", "consumer_offset"),
            },
            ("broker", "group_name", "origin_topic", "reason"),
            needs_now=True,
        ),
    )
}
