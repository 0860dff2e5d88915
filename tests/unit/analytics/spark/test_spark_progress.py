"""Messages to people about an error of Spark."""

from typing import Any

import pytest

from rocketbroker.analytics.spark.spark_progress import SparkProgress, reason_of

OURS = """[STREAM_FAILED] Traceback (most recent call last):
rocketbroker.common.errors.StoreError: cannot read the file x
\tat org.apache.spark.Foo
rocketbroker.common.errors.StoreError: cannot read the file y

Driver stacktrace:"""
OF_JAVA = """An error occurred while calling o54.save.
: java.io.IOException: Mkdirs failed to create file:/proc/x
\tat org.apache.hadoop.fs.ChecksumFileSystem.create(ChecksumFileSystem.java:1)
Caused by: something else"""

OF_PYTHON = """An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "worker.py", line 1, in main
    read()
MemoryError: no room for 5 GiB

\tat org.apache.spark.api.python.BasePythonRunner"""


OF_A_THREAD = """An error occurred while calling o1.x
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:1)
Caused by: org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow.
\tat org.apache.spark.sql.Foo"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (OF_PYTHON, "MemoryError: no room for 5 GiB"),
        (OURS, "cannot read the file y"),
        (OF_A_THREAD, "org.apache.spark.SparkArithmeticException: [ARITHMETIC_OVERFLOW] long overflow."),
        (OF_JAVA, "java.io.IOException: Mkdirs failed to create file:/proc/x"),
        ("[PATH_NOT_FOUND] Path does not exist: x.", "[PATH_NOT_FOUND] Path does not exist: x."),
        ("An error occurred while calling o1.x", "An error occurred while calling o1.x"),
        ("first\nsecond\n\nDriver stacktrace:\nthird", "first\nsecond"),
    ],
)
def test_the_reason_is_reported_without_the_stack(said: str, told: str) -> None:
    assert reason_of(RuntimeError(said)) == told


class CapturedError(Exception):
    """As Spark's errors are, whose cause is an error of Spark again."""

    def __init__(self, said: str, cause: Exception | None = None) -> None:
        super().__init__(said)
        self._cause = cause


def test_what_happened_on_another_thread_is_reported() -> None:
    awaited = "Exception thrown in awaitResult: "
    failed = CapturedError(awaited, CapturedError(awaited, CapturedError("[ARITHMETIC_OVERFLOW] long overflow.")))
    assert reason_of(failed) == "[ARITHMETIC_OVERFLOW] long overflow."
    assert reason_of(CapturedError("[OTHER] this.", CapturedError("that"))) == "[OTHER] this."
    assert reason_of(CapturedError(awaited)) == awaited.strip()


def test_a_session_is_not_queried_without_a_listener() -> None:
    session_without_context: Any = object()
    with SparkProgress(session_without_context, None):
        pass


class IdleSession:
    """A session without running stages."""

    @property
    def sparkContext(self) -> "IdleSession":  # noqa: N802 - Spark's name
        return self

    def statusTracker(self) -> "IdleSession":  # noqa: N802 - Spark's name
        return self

    def getActiveStageIds(self) -> list[int]:  # noqa: N802 - Spark's name
        return []


def test_a_job_that_ends_before_it_is_looked_at_is_done_and_a_failed_one_is_not() -> None:
    session: Any = IdleSession()
    told: list[tuple[int, int]] = []
    with SparkProgress(session, lambda *done: told.append(done)):
        pass
    assert told == [(1, 1)]
    with pytest.raises(KeyError), SparkProgress(session, lambda *done: told.append(done)):
        raise KeyError
    assert told == [(1, 1)]
