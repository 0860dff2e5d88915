"""Common options of the sub-commands, the settings of the store, and exit codes."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rocketbroker.app.terminal import say
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
