"""Sub-commands of ``mqanalytics``: the jobs of ``analytics/jobs/job_list.py``, and commands with a file here.

A file is imported when its command is called.
"""

from collections.abc import Callable
from typing import Final

from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.command_line import SubCommand

_OWN: Final = {
    "count": SubCommand("count", "Count the messages of each topic and queue."),
    "queue-traffic": SubCommand("queue_traffic", "Count traffic from the queues, much faster and without Spark."),
    "report": SubCommand("report", "Write one HTML page about stores."),
    "search": SubCommand("search", "Search for text in bodies and properties."),
    "audit": SubCommand("audit", "Check that stored data is complete and consistent."),
    "compare": SubCommand("compare", "Compare the messages of two stores."),
    "export": SubCommand("export", "Write messages to Parquet, JSON lines, Delta or Iceberg."),
    "replay": SubCommand("replay", "Send exported messages to a broker again."),
    "snapshot": SubCommand("snapshot", "Save the current offsets of consumer groups."),
    "lag": SubCommand("lag", "Show the lag of consumer groups, now or in snapshots."),
}

SUB_COMMANDS: Final = {
    "count": _OWN["count"],
    **{job.name: SubCommand("table_jobs", job.summary) for job in JOBS.values()},
    **{name: each for name, each in _OWN.items() if name != "count"},
}


def load(name: str) -> Callable[..., None]:
    """Import the function of a sub-command."""
    if name in JOBS:
        from rocketbroker.app.mqanalytics.table_jobs import command_of

        return command_of(JOBS[name])
    return _OWN[name].load(__package__)
