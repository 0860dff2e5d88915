"""Files of progress of ``mqadmin export`` and ``import``, and what a resumed run must have in common with them."""

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rocketbroker.app.mqadmin.selecting import GivenTime
from rocketbroker.common.errors import ConfigError


class Times(NamedTuple):
    """Store times in ms: from the first one to before the second one; None is no limit."""

    from_ms: int | None
    until_ms: int | None


def ms_of(given: GivenTime | None) -> int | None:
    """Return a time in ms."""
    return None if given is None else given.ms


def text_of(given: GivenTime | None) -> str | None:
    """Return a time as it was given."""
    return None if given is None else given.text


def write_state(path: Path, state: msgspec.Struct) -> None:
    """Replace a file of progress as a whole, on disk before it gets its name.

    Raises:
        OSError: it cannot be written; the file is as before.
    """
    draft = path.with_name(path.name + ".tmp")
    try:
        with draft.open("wb") as file:
            file.write(msgspec.json.encode(state))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def read_state(path: Path, kind: Any) -> Any:
    """Return the progress in a file.

    Raises:
        ConfigError: it is not a file of progress.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"{path} is no file of progress: {error}; remove it to begin at the start") from error


def check_options(before: Mapping[str, Any], now: Mapping[str, Any], path: Path) -> None:
    """Compare the options of an interrupted run with those of this one.

    Raises:
        ConfigError: one differs.
    """
    for name, value in now.items():
        if before.get(name) != value:
            raise ConfigError(
                f"{path.name} was begun with {name} {before.get(name)!r}, now it is {value!r}; "
                "give the same options to resume"
            )
