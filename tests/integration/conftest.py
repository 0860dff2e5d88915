"""What tests of jobs share."""

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import golden_store
from tests.support.shared_session import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark(shared_session: SharedSession) -> "SparkSession":
    """The session for few rows that all tests of this process share."""
    return shared_session.get()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of Apache RocketMQ."""
    return golden_store.unpack("clean", tmp_path_factory.mktemp("recorded"))
