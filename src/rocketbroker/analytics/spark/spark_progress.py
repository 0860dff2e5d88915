"""Progress of a Spark job, its description, and the reason when one fails."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import takewhile

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

#: Called with the number of finished and of all tasks.
Progress = Callable[[int, int], None]

_POLL_SECONDS = 0.2
_DESCRIPTION = "spark.job.description"
_OURS = "rocketbroker.common.errors."
# Text of py4j before Java's error, and the start of lines after it.
_CALL = "An error occurred while calling"
_TRACEBACK = "Traceback (most recent call last)"
_STACK = ("\tat ", "Driver stacktrace:")
# The whole text if one Spark thread waited for another; the error itself is the cause.
_AWAITED = "Exception thrown in awaitResult:"
_CAUSE = "Caused by: "


def reason_of(error: Exception) -> str:
    """Return our own error if a worker raised one, else Spark's text before its stack trace."""
    cause = getattr(error, "_cause", None)  # set by Spark's errors; there is no public name
    if isinstance(cause, Exception) and str(error).strip().endswith(_AWAITED):
        return reason_of(cause)
    lines = str(error).splitlines()
    ours = [line for line in lines if line.startswith(_OURS)]
    if ours:
        return ours[-1].partition(": ")[2]
    said = list(takewhile(lambda line: not line.startswith(_STACK), lines))
    if any(_TRACEBACK in line for line in said):  # of Python: the error is at its end
        return [line for line in said if line.strip() and not line[0].isspace()][-1]
    told = "\n".join(line.removeprefix(": ") for line in said if not line.startswith(_CALL)).strip() or str(error)
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    return causes[-1] if told.endswith(_AWAITED) and causes else told


@contextmanager
def described(spark: SparkSession, text: str) -> Iterator[None]:
    """Show ``text`` for the jobs of the block in Spark's web pages; in a session of Spark Connect do nothing."""
    context = getattr(spark, "sparkContext", None)
    if context is None:
        yield
        return
    before = context.getLocalProperty(_DESCRIPTION)
    context.setJobDescription(text)
    try:
        yield
    finally:
        with suppress(Py4JError):  # the JVM has ended: the block says why
            context.setLocalProperty(_DESCRIPTION, before)


class SparkProgress:
    """Reports the progress of Spark's jobs while the block runs: calls ``progress`` five times a second on a thread.

    After a block without an error, ``progress`` is called once more, with all tasks finished. With ``progress`` the
    session must have its own context, as local ones do.
    """

    def __init__(self, spark: SparkSession, progress: Progress | None) -> None:
        # A session of Spark Connect has no context.
        self._tracker = None if progress is None else spark.sparkContext.statusTracker()
        self._progress = progress
        self._total = 1
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._poll, name="spark-progress", daemon=True)

    def __enter__(self) -> None:
        if self._progress is not None:
            self._thread.start()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        if self._progress is not None and error is None:
            self._progress(self._total, self._total)

    def _poll(self) -> None:
        assert self._progress is not None
        assert self._tracker is not None
        while not self._done.wait(_POLL_SECONDS):
            stages = [self._tracker.getStageInfo(stage) for stage in self._tracker.getActiveStageIds()]
            running = [stage for stage in stages if stage is not None]
            if running:
                self._total = sum(stage.numTasks for stage in running)
                self._progress(sum(stage.numCompletedTasks for stage in running), self._total)
