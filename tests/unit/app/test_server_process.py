"""Life and end of a server command."""

import asyncio
import logging
import os
import signal
from pathlib import Path

import pytest

from rocketbroker.app.server_process import limits_of, log_access, log_remarks, run, serve
from rocketbroker.common.config import TransportConfig
from rocketbroker.common.config.proxy_config import ProxyConfig
from rocketbroker.common.config.proxy_settings import ProxySettings
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.open_files import connection_limit
from rocketbroker.transport.peer_limits import WRITE_HIGH_WATER, ConnectionLimits
from tests.support.tls_files import TlsFiles


class Recorded:
    """A part that notes what is done to it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.events: list[str] = []
        self._error = error

    async def start(self) -> None:
        self.events.append("start")
        if self._error is not None:
            raise self._error

    async def stop(self) -> None:
        self.events.append("stop")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_the_part(number: signal.Signals) -> None:
    part = Recorded()

    def booted() -> None:
        part.events.append("booted")
        os.kill(os.getpid(), number)

    run(serve(part, booted))
    assert part.events == ["start", "booted", "stop"]


def test_a_signal_cancels_a_start_that_may_be_cancelled() -> None:
    part = Recorded()

    async def start() -> None:
        part.events.append("start")
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(60)

    part.start = start  # type: ignore[method-assign]
    run(serve(part, lambda: part.events.append("booted"), cancels_start=True))
    assert part.events == ["start"]


def test_a_coroutine_may_be_given_for_the_time_after_the_start() -> None:
    part = Recorded()

    async def booted() -> None:
        part.events.append("booted")
        os.kill(os.getpid(), signal.SIGTERM)

    run(serve(part, booted))
    assert part.events == ["start", "booted", "stop"]


def test_a_failed_start_is_raised_and_nothing_is_stopped() -> None:
    part = Recorded(ConfigError("no"))
    with pytest.raises(ConfigError, match="no"):
        run(serve(part, lambda: None))
    assert part.events == ["start"]


def test_a_part_is_stopped_when_what_follows_the_start_fails() -> None:
    part = Recorded()

    def booted() -> None:
        raise ConfigError("no")

    with pytest.raises(ConfigError, match="no"):
        run(serve(part, booted))
    assert part.events == ["start", "stop"]


def test_signals_are_as_before_afterwards() -> None:
    before = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    part = Recorded()
    run(serve(part, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == before


def test_each_setting_becomes_a_limit():
    config = TransportConfig.model_validate(
        {
            "com.rocketmq.remoting.frameMaxLength": 5000,
            "maxConnections": 7,
            "maxConnectionsPerAddress": 3,
            "writeBufferHighWaterMark": 9000,
            "writeBufferLowWaterMark": 8000,
            "serverSocketSndBufSize": 13,
            "serverSocketRcvBufSize": 12,
            "serverChannelMaxIdleTimeSeconds": 11,
            "maxHeaderLength": 70_000,
            "maxRequestBodySize": 80_000,
            "maxHeldBytes": 1 << 26,
            "frameTimeoutSeconds": 17,
            "maxPushBytesPerConnection": 6000,
            "slowRequestMs": 2500,
        }
    )

    assert limits_of(config) == ConnectionLimits(
        frame_max_length=5000,
        max_connections=7,
        max_connections_per_address=3,
        write_high_water=9000,
        write_low_water=8000,
        send_buffer=13,
        receive_buffer=12,
        max_idle_s=11,
        max_header_length=70_000,
        max_request_body_size=80_000,
        max_held_bytes=1 << 26,
        frame_timeout_s=17,
        max_push_bytes=6000,
        slow_request_s=2.5,
        max_descriptor=connection_limit(),
    )


def test_0_leaves_the_high_water_mark_to_the_broker():
    made = ConnectionLimits(max_connections=10_000, max_descriptor=connection_limit(), slow_request_s=1.0)
    assert limits_of(TransportConfig()) == made
    assert limits_of(TransportConfig()).write_high_water == WRITE_HIGH_WATER


def test_connections_are_no_more_than_open_files(monkeypatch):
    monkeypatch.setattr("rocketbroker.app.server_process.connection_limit", lambda: 752)

    limits = limits_of(TransportConfig())

    assert (limits.max_connections, limits.max_descriptor) == (752, 752)


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


@pytest.mark.parametrize(
    ("host", "is_warned"),
    [("192.0.2.1", False), ("broker.example", False), ("192.0.2.2", True), ("other.example", True), ("", False)],
)
def test_a_certificate_for_other_hosts_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str, is_warned: bool
):
    files = TlsFiles(tmp_path, ["192.0.2.1", "broker.example"])
    log_access(TransportConfig.model_validate(files.of_server()), host)
    said = f"is for broker.example, 192.0.2.1, and routes lead clients to {host} (brokerIP1)"
    assert (said in caplog.text) is is_warned
    caplog.clear()
    for settings in (files.of_server(mode="disabled"), files.of_server() | {"tls.server.certPath": f"{tmp_path}/none"}):
        log_access(TransportConfig.model_validate(settings), "other.example")
    assert "routes lead" not in caplog.text


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


def test_warnings_and_notes_of_settings_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        log_remarks(ProxySettings(ProxyConfig(), ("a has no effect",), ("b changes nothing",)))

    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("WARNING", "settings: a has no effect"),
        ("INFO", "settings: b changes nothing"),
    ]
