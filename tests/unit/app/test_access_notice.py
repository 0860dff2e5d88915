"""Line of a server about those who may use it."""

import logging

import pytest

from rocketbroker.app.access_notice import log_access
from rocketbroker.common.config import TransportConfig


@pytest.fixture
def notice(caplog: pytest.LogCaptureFixture):
    """Gives level and text of the one line that is logged for some settings."""

    def log(**settings: str) -> tuple[int, str]:
        caplog.clear()
        with caplog.at_level(logging.INFO):
            log_access(TransportConfig.model_validate(settings))
        (record,) = caplog.records
        return record.levelno, record.getMessage()

    return log


def test_protected_mode_is_the_default_and_says_whom_it_admits(notice) -> None:
    assert notice() == (
        logging.INFO,
        (
            "protected mode is on: peers on other machines are clients only; adminWhiteList is empty, "
            "brokerWhiteList is empty"
        ),
    )
    assert notice(adminWhiteList="192.0.2.1", brokerWhiteList="10.0.0.0/8")[1].endswith(
        "clients only; adminWhiteList=192.0.2.1, brokerWhiteList=10.0.0.0/8"
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_nobody_is_warned_of_a_server_that_only_this_machine_reaches(notice, host: str) -> None:
    assert notice(protectedMode="false", bindAddress=host) == (
        logging.INFO,
        f"protected mode is off; only this machine can reach {host}",
    )


@pytest.mark.parametrize(
    ("host", "shown"),
    [("0.0.0.0", "0.0.0.0"), ("", "0.0.0.0"), ("192.0.2.1", "192.0.2.1"), ("broker.example.org", "broker.example.org")],
)
def test_an_open_server_warns_of_who_may_administer_it(notice, host: str, shown: str) -> None:
    level, said = notice(protectedMode="false", bindAddress=host)

    assert level == logging.WARNING
    assert said.startswith(f"protected mode is off: anyone who can reach {shown} may administer this server; ")
