"""``mqanalytics prepare``: an archive of Spark's classes, with which later jobs start faster."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from rocketbroker.analytics.jobs.job_list import JOBS
from rocketbroker.app.mqanalytics.running import ROWS, failing_in_one_line, known_stores
from rocketbroker.app.mqanalytics.tables import rows_and_summary, run
from rocketbroker.app.terminal import say
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.storefile.store_file import offset_to_file_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOST = bytes([127, 0, 0, 1, 0, 0, 0, 0])


def command() -> None:
    """Write an archive of Spark's classes to the user's cache, with which later jobs start faster."""
    with failing_in_one_line():
        from rocketbroker.analytics.spark.local_session import write_archive

        say(write_archive(_run_jobs))


def _run_jobs(spark: "SparkSession") -> None:
    """Run the jobs over messages on a store of one: Java archives the classes that it has loaded."""
    from rocketbroker.analytics import register
    from rocketbroker.analytics.columns.selection import EVERYTHING
    from rocketbroker.analytics.jobs.scope import Scope

    register(spark)
    with TemporaryDirectory(prefix="rocketbroker-store-") as folder:
        log = Path(folder, "commitlog")
        log.mkdir()
        record = encode_record(0, 0, 0, 0, 0, 1, _HOST, 1, _HOST, 0, 0, b"body", b"prepare", b"KEYS\x01a\x02")
        Path(log, offset_to_file_name(0)).write_bytes(record)
        scope = Scope(spark, known_stores([folder]), EVERYTHING)
        for job in (each for each in JOBS.values() if list(each.reads) == ["messages"]):  # it has no other tables
            frame = run(job, scope, {option.name: option.default for option in job.options})
            rows_and_summary(scope, frame, job.order, ROWS, skip_damage=False)
