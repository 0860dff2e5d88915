"""Options that all sub-commands share, settings of the store, exit codes, and output of rows.

Rows are ``name=value`` pairs for people, JSON lines for programs.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from rocketbroker.app.terminal import json_text, say, say_json
from rocketbroker.app.times import human_millis
from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.config.load import load_broker_settings
from rocketbroker.common.errors import CodecError, ConfigError, StoreError

StoreDir = Annotated[Path, typer.Argument(metavar="DIR", help="Directory of the store (storePathRootDir).")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--configFile",
        metavar="FILE",
        help="Settings file of the broker, for paths, file sizes and delay levels.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]

Limit = Annotated[int, typer.Option("--limit", min=0, metavar="COUNT", help="Rows to show at most; 0 shows all.")]

Row = Mapping[str, Any]

EXIT_ERRORS = 1
EXIT_UNREADABLE = 2
EXIT_NOT_DONE = 3


def store_config(directory: Path, config_file: Path | None) -> MessageStoreConfig:
    """Return the settings of the store in ``directory``.

    Raises:
        ConfigError: The settings file is invalid.
        StoreError: The directory does not exist.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise StoreError(f"{directory} {what}; give the directory of a store, which contains commitlog/")
    settings = load_broker_settings(config_file, environment={}).store
    return settings.model_copy(update={"store_path_root_dir": str(directory)})


@contextmanager
def reading_a_store() -> Iterator[None]:
    """Exit with 2 and one line on stderr if the store does not exist or cannot be read."""
    try:
        yield
    except (StoreError, ConfigError, CodecError) as error:
        fail(str(error))
    except OSError as error:  # a broker that has the store open removes files
        # An error of open() has a filename; one of read() or write() has none.
        fail(f"{error.filename} cannot be read: {error.strerror}" if error.filename else f"disk error: {error}")


def fail(reason: str, exit_code: int = EXIT_UNREADABLE) -> NoReturn:
    """Print one line to stderr and exit.

    Raises:
        typer.Exit: always.
    """
    say("mqstore:", " ".join(reason.split()), err=True)
    raise typer.Exit(exit_code)


def print_rows(rows: Iterable[Row], *, as_json: bool, limit: int = 0) -> None:
    """Print rows; in text, values in ms whose names end in ``Timestamp`` become dates."""
    for row in islice(rows, limit or None):
        say_json(row) if as_json else say(_line(row))


def _line(row: Row) -> str:
    return " ".join(f"{name}={_text(name, value)}" for name, value in row.items() if value is not None)


def _text(name: str, value: Any) -> str:
    if name.endswith("Timestamp"):
        return human_millis(value).replace(" ", "T", 1) if value > 0 else str(value)
    if isinstance(value, str):
        plain = value and value.isprintable() and not set(value) & set(' "=')
        return value if plain else json_text(value)
    return json_text(value)
