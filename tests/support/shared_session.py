"""One Spark session for the tests of a process: starting and warming one up takes as long as many queries."""

from contextlib import ExitStack
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class SharedSession:
    """Starts a session for few rows when one is wanted first."""

    def __init__(self) -> None:
        self._session: SparkSession | None = None
        self._leave = ExitStack()

    def get(self) -> "SparkSession":
        """Return the session, which knows our format."""
        from rocketbroker.analytics import register, spark_session
        from tests.support.job_frames import SMALL_SESSION

        if self._session is None:
            tables = self._leave.enter_context(TemporaryDirectory())
            pages = {"spark.ui.enabled": "true", "spark.ui.port": "0"}
            settings = {**SMALL_SESSION, **pages, "spark.sql.warehouse.dir": tables}
            self._session = self._leave.enter_context(spark_session("tests", settings))
        register(self._session)
        return self._session

    def close(self) -> None:
        """End the session, if any; the next ``get`` starts another."""
        self._session = None
        self._leave.close()
