"""Tests that may run beside each other."""

import pytest


def test_tests_of_one_group_stay_on_one_worker(request: pytest.FixtureRequest):
    """Tests of one file share servers, these here syntax trees: pytest-xdist has to know the groups."""
    if not request.config.getoption("loadgroup", False):
        pytest.skip("needs pytest -n 2 --dist loadgroup, as bin/test runs it")
    assert request.node.nodeid.endswith("@architecture")
