"""Jobs that compute a table from the messages of stores; a job's file is imported when it runs.

Commands and documentation are generated from this list. It does not import Spark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of a job that its user may set.

    Attributes:
        name: name of the parameter; on the command line with dashes.
        default: default value, which sets the type; a tuple means that the option may be repeated.
        help: its meaning, with the unit.
        least: the smallest value of a number.
    """

    name: str
    default: Any
    help: str
    least: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its command.

    Attributes:
        name: its sub-command.
        module: its file in this package.
        function: the function in it, which takes data frames in the order of ``reads``, and options by name.
        summary: one line for help.
        reads: its tables and their columns, ``messages`` first; all columns if none are named.
        order: sort columns of its rows; "-" before a name for descending.
        options: its options.
        needs_now: true if it takes the current time, in ms, as ``now_ms``.
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


#: Default percentiles of jobs.
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_PERCENTILES: Final = Option("percentiles", PERCENTILES, "A percentile to compute, 0 to 100; may be repeated.", 0)
_TIMES: Final = ("broker", "topic", "store_timestamp", "born_timestamp")

JOBS: Final[dict[str, Job]] = {
    job.name: job
    for job in (
        Job(
            "traffic",
            "traffic",
            "traffic",
            "Count messages and bytes of each topic by time.",
            {"messages": ("broker", "topic", "store_timestamp", "size")},
            ("from_time", "broker", "topic"),
            (Option("interval", 60, "Seconds of an interval.", 1),),
        ),
        Job(
            "sizes",
            "sizes",
            "sizes",
            "Measure the sizes of messages by topic, in bytes.",
            {"messages": ("broker", "topic", "size")},
            ("broker", "topic"),
            (_PERCENTILES,),
        ),
        Job(
            "hot-keys",
            "skew",
            "hot_keys",
            "Find the most frequent keys of each topic.",
            {"messages": ("broker", "topic", "keys", "size")},
            ("broker", "topic", "rank"),
            (Option("top", 20, "Number of keys per topic.", 1),),
        ),
        Job(
            "skew",
            "skew",
            "skew",
            "Measure how evenly messages are spread over queues.",
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
            "Measure the time from producer to store, in ms.",
            {"messages": _TIMES},
            ("broker", "topic"),
            (_PERCENTILES,),
        ),
        Job(
            "retry-delays",
            "delays",
            "retry_delays",
            "Measure the age of messages at each retry, in ms.",
            {"messages": (*_TIMES, "reconsume_times", "msg_id", "properties")},
            ("group_name", "reconsume_times"),
            (_PERCENTILES,),
        ),
        Job(
            "retries",
            "retries",
            "retries",
            "Count retries and dead letters by reason and age.",
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
