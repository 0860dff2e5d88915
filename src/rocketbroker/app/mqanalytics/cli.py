"""The command ``mqanalytics``.

mqanalytics JOB STORE... [OPTION]...

Exit code 0: done; 1: a store or Spark could not be used, the reason is on stderr; 2: wrong usage; 3: an audit found
errors, or a comparison differences; 130: interrupted. A sub-command's file is imported when it is called.
"""

from collections.abc import Callable
from typing import Final

from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.command_line import SubCommand, lazy_app

_OWN: Final = {
    "count": SubCommand("tables", "Count the messages of each topic and queue.", "count"),
    "queue-traffic": SubCommand(
        "tables", "Count traffic from the queues, much faster and without Spark.", "queue_traffic"
    ),
    "report": SubCommand("report", "Write one HTML page about stores."),
    "search": SubCommand("tables", "Search for text in bodies and properties.", "search"),
    "audit": SubCommand("audit", "Check that stored data is complete and consistent."),
    "compare": SubCommand("tables", "Compare the messages of two stores.", "compare"),
    "export": SubCommand("transfer", "Write messages to Parquet, JSON lines, Delta or Iceberg.", "export"),
    "replay": SubCommand("transfer", "Send exported messages to a broker again.", "replay"),
    "snapshot": SubCommand("tables", "Save the current offsets of consumer groups.", "snapshot"),
    "lag": SubCommand("tables", "Show the lag of consumer groups, now or in snapshots.", "lag"),
}

SUB_COMMANDS: Final = {
    "count": _OWN["count"],
    **{job.name: SubCommand("tables", job.summary) for job in JOBS.values()},
    **{name: each for name, each in _OWN.items() if name != "count"},
}


def load(name: str) -> Callable[..., None]:
    """Import the function of a sub-command."""
    if name in JOBS:
        from rocketbroker.app.mqanalytics.tables import command_of

        return command_of(JOBS[name])
    return _OWN[name].load(__package__)


app = lazy_app(SUB_COMMANDS, load, "Analyse the stores of RocketMQ brokers, even while the brokers run.")


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqanalytics")


if __name__ == "__main__":
    main()
