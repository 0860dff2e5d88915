"""Names of retry topics, as consumers that pull and consumption by pop have them."""

import pytest

from rocketbroker.analytics.columns.retry_topics import retry_group
from tests.support.retry_names import RETRY_NAMES


@pytest.mark.parametrize(("name", "properties", "group"), RETRY_NAMES)
def test_the_group_follows_from_the_name_and_the_message(name: str, properties: dict[str, str], group: str) -> None:
    assert retry_group(f"%RETRY%{name}", properties) == group
