"""What ``rocketbroker.client`` offers."""

import pytest

from rocketbroker import client


@pytest.mark.parametrize("name", client._HOMES)
def test_each_name_is_there(name: str):
    assert getattr(client, name).__name__ == name


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="has no attribute 'Nothing'"):
        _ = client.Nothing
