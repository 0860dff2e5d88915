"""Warnings of the client on mqadmin's stderr."""

import logging

import pytest

from rocketbroker.app.mqadmin.client_warnings import warnings_on_stderr

LOG = logging.getLogger("rocketbroker.client.test")


def test_a_warning_has_the_name_of_the_command_and_harms_no_terminal(capsys: pytest.CaptureFixture[str]):
    with warnings_on_stderr():
        LOG.warning("heartbeat to %s failed", "a\x1b[2J:1")
        LOG.info("not shown")
    LOG.warning("later")

    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "mqadmin: heartbeat to a\\x1b[2J:1 failed\n")


def test_the_lines_of_a_stack_stay_apart(capsys: pytest.CaptureFixture[str]):
    with warnings_on_stderr():
        LOG.error("the event loop is blocked:\n  File x, line 1")

    assert capsys.readouterr().err == "mqadmin: the event loop is blocked:\n  File x, line 1\n"
