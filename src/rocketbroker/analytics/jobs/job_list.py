"""Jobs that compute a table from the messages of stores; a job's file is imported when it runs.

Commands and documentation are generated from this list. It does not import Spark.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Option:
    """A parameter of a job that its user may set; it is named with dashes on the command line.

    ``default`` sets the type; a tuple means that the option may be repeated. ``help`` includes the unit, and ``least``
    is the smallest value of a number.
    """

    name: str
    default: Any
    help: str
    least: float | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A job and its sub-command; its function has the same name with underscores."""

    name: str
    summary: str  # one line for help
    reads: dict[str, tuple[str, ...]]  # tables and their columns, ``messages`` first, as the function takes them
    order: tuple[str, ...]  # sort columns of its rows; "-" before a name for descending
    options: tuple[Option, ...] = ()
    needs_now: bool = False  # true if the function takes the current time in ms as ``now_ms``

    def load(self) -> Callable[..., Any]:
        """Import the function."""
        name = self.name.replace("-", "_")
        found: Callable[..., Any] = getattr(import_module(f"{__package__}.message_jobs"), name)
        return found


#: Default percentiles of jobs.
PERCENTILES: Final = (50.0, 90.0, 99.0, 99.9)
_PERCENTILES: Final = Option("percentiles", PERCENTILES, "A percentile to compute, 0 to 100; may be repeated.", 0)
_TIMES: Final = ("broker", "topic", "store_timestamp", "born_timestamp")
_QUEUE: Final = ("broker", "topic", "queue_id")

JOBS: Final[dict[str, Job]] = {
    job.name: job
    for job in (
        Job(
            "traffic",
            "Count messages and bytes of each topic by time.",
            {"messages": ("broker", "topic", "store_timestamp", "size")},
            ("from_time", "broker", "topic"),
            (Option("interval", 60, "Seconds of an interval.", 1),),
        ),
        Job(
            "sizes",
            "Measure the sizes of messages by topic, in bytes.",
            {"messages": ("broker", "topic", "size")},
            ("broker", "topic"),
            (_PERCENTILES,),
        ),
        Job(
            "hot-keys",
            "Find the most frequent keys of each topic.",
            {"messages": ("broker", "topic", "keys", "size")},
            ("broker", "topic", "rank"),
            (Option("top", 20, "Number of keys per topic.", 1),),
        ),
        Job(
            "skew",
            "Measure how evenly messages are spread over queues.",
            {"messages": (*_QUEUE, "size"), "topics": ("broker", "topic", "write_queue_nums")},
            _QUEUE,
        ),
        Job(
            "delays",
            "Measure the time from producer to store, in ms.",
            {"messages": _TIMES},
            ("broker", "topic"),
            (_PERCENTILES,),
        ),
        Job(
            "retry-delays",
            "Measure the age of messages at each retry, in ms.",
            {"messages": (*_TIMES, "reconsume_times", "msg_id", "properties")},
            ("group_name", "reconsume_times"),
            (_PERCENTILES,),
        ),
        Job(
            "retries",
            "Count retries and dead letters by reason and age.",
            {
                "messages": (*_QUEUE, "queue_offset", "store_timestamp", "reconsume_times", "properties"),
                "subscription_groups": ("broker", "group_name", "retry_max_times"),
                "consumer_offsets": (*_QUEUE, "group_name", "consumer_offset"),
            },
            ("broker", "group_name", "origin_topic", "reason"),
            needs_now=True,
        ),
    )
}
