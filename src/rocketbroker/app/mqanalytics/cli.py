"""The command ``mqanalytics``.

mqanalytics JOB STORE... [OPTION]...

Exit code 0: done; 1: a store or Spark could not be used, the reason is on stderr; 2: wrong usage; 3: an audit found
errors, or a comparison differences; 130: interrupted. A sub-command's file is imported when it is called.
"""

from collections.abc import Callable
from typing import Annotated, Final

import typer

from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.command_line import SubCommand, Version, lazy_app

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
    "compact": SubCommand("transfer", "Join the small files of an export.", "compact"),
    "replay": SubCommand("transfer", "Send exported messages to a broker again.", "replay"),
    "snapshot": SubCommand("tables", "Save the current offsets of consumer groups.", "snapshot"),
    "lag": SubCommand("tables", "Show the lag of consumer groups, now or in snapshots.", "lag"),
    "prepare": SubCommand("prepare", "Make Spark start faster on this machine."),
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
    return _OWN[name].load("rocketbroker.app.mqanalytics")  # spark-submit runs this file as no part of a package


def spark_options(
    version: Version = False,
    master: Annotated[
        str | None, typer.Option("--master", metavar="URL", help="Run Spark there, such as spark://HOST:7077.")
    ] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="NAME=VALUE", help="A setting of Spark; may be repeated.")
    ] = None,
) -> None:
    """Keep the settings of Spark for the sub-command."""
    from rocketbroker.app.mqanalytics.running import SPARK_SETTINGS

    settings = {} if master is None else {"spark.master": master}
    for each in conf or ():
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise typer.BadParameter(f"{each!r} is not a Spark setting; give spark.NAME=VALUE", param_hint="--conf")
        settings[name] = value
    SPARK_SETTINGS.set(settings)


app = lazy_app(
    SUB_COMMANDS, load, "Analyse the stores of RocketMQ brokers, even while the brokers run.", root=spark_options
)


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqanalytics")


if __name__ == "__main__":
    main()
