"""What tests of jobs share."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import golden_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> "Iterator[SparkSession]":
    """A session for few rows that knows our format; ends with the file's tests."""
    from rocketbroker.analytics import register, spark_session
    from tests.support.job_frames import SMALL_SESSION

    with spark_session("tests", SMALL_SESSION) as session:
        register(session)
        yield session


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of Apache RocketMQ."""
    return golden_store.unpack("clean", tmp_path_factory.mktemp("recorded"))
