"""All jobs as commands in one session; prints their output as a line of JSON.

Arguments: a store, another one to compare it with, and the folder of an export. ``spark-submit`` runs it at a cluster.
"""

import json
import sys
from typing import Any

from typer.testing import CliRunner

from rocketbroker.analytics import register, spark_session
from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.mqanalytics.cli import app


def printed(*arguments: str) -> Any:
    """Return the exit code of a command, and its JSON."""
    done = CliRunner().invoke(app, [*arguments, "--json"])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.exit_code, json.loads(done.stdout)


if __name__ == "__main__":
    store, other, target = sys.argv[1:]
    commands = {
        **{job: [store] for job in JOBS},
        "lag": [store],
        "search": [store, "--text", "1"],
        "compare": [store, other],
        "export": [store, "--to", target],
        "audit": [store, "--engine", "spark"],
        "count": [store, "--engine", "spark"],
    }
    with spark_session("all jobs") as spark:
        register(spark)
        found = {job: printed(job, *arguments) for job, arguments in commands.items()}
        print("RESULT " + json.dumps([spark.sparkContext.master, found]))
