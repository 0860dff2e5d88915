"""The sub-commands of ``mqanalytics``: the jobs of ``analytics/jobs/job_list.py``, and those with a file here.

A file is imported when its command is called.
"""

from collections.abc import Callable
from typing import Final

from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.lazy_commands import SubCommand

_OWN: Final = {
    "count": SubCommand("count", "Count the messages of each topic and queue."),
    "queue-traffic": SubCommand("queue_traffic", "Traffic by the queues, at a fraction of the work; no Spark."),
    "report": SubCommand("report", "Write one HTML page on stores."),
    "search": SubCommand("search", "Look for text in bodies and properties."),
    "audit": SubCommand("audit", "Check that nothing stored is lost or in disagreement."),
    "compare": SubCommand("compare", "Hold the messages of two stores against each other."),
    "export": SubCommand("export", "Write messages to Parquet, JSON lines, Delta or Iceberg."),
    "replay": SubCommand("replay", "Send what was exported to a broker again."),
    "snapshot": SubCommand("snapshot", "Keep what consumer groups have consumed by now."),
    "lag": SubCommand("lag", "How far consumer groups were behind, by snapshots."),
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
