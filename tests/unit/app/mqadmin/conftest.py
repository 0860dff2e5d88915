"""Tests of mqadmin begin with no option given: a command that ran in this process leaves what it was given."""

from collections.abc import Iterator

import pytest

from rocketbroker.app.mqadmin.named_clusters import CHOSEN, GIVEN_SERVERS, Chosen


@pytest.fixture(autouse=True)
def _no_option_is_given() -> Iterator[None]:
    chosen, given = CHOSEN.set(Chosen()), GIVEN_SERVERS.set(None)
    yield
    CHOSEN.reset(chosen)
    GIVEN_SERVERS.reset(given)
