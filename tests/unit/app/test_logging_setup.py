"""Where log lines go."""

import logging
from collections.abc import Iterator

import pytest

from rocketbroker.app.logging_setup import LEVEL_VARIABLE, set_up_logging
from rocketbroker.common.errors import ConfigError


@pytest.fixture(autouse=True)
def kept_loggers() -> Iterator[None]:
    root, asyncio_logger = logging.getLogger(), logging.getLogger("asyncio")
    before = root.handlers[:], root.level, asyncio_logger.level
    yield
    root.handlers[:], level, asyncio_level = before
    root.setLevel(level)
    asyncio_logger.setLevel(asyncio_level)


def test_lines_from_the_level_on_go_to_stderr(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(LEVEL_VARIABLE, raising=False)
    set_up_logging()
    logging.getLogger("rocketbroker.x").debug("not this")
    logging.getLogger("rocketbroker.x").info("but this %d", 7)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.endswith("INFO    rocketbroker.x - but this 7\n")
    assert "not this" not in written.err


def test_the_argument_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LEVEL_VARIABLE, "error")
    set_up_logging()
    assert logging.getLogger().level == logging.ERROR
    assert logging.getLogger("asyncio").level == logging.ERROR
    set_up_logging("debug")
    assert logging.getLogger().level == logging.DEBUG
    assert logging.getLogger("asyncio").level == logging.WARNING


def test_it_may_be_set_up_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    set_up_logging("INFO")
    set_up_logging("INFO")
    assert len(logging.getLogger().handlers) == 1


def test_an_unknown_level_is_named() -> None:
    with pytest.raises(ConfigError, match=r"unknown log level 'CHATTY' .*; use one of DEBUG, INFO,"):
        set_up_logging("chatty")
