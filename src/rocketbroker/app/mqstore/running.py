"""What all sub-commands share: options, which store, and how they fail."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.common.config.load import load_broker_settings
from rocketbroker.common.errors import CodecError, ConfigError, StoreError

StoreDir = Annotated[Path, typer.Argument(metavar="DIR", help="The store's directory (storePathRootDir).")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "-c",
        "--configFile",
        metavar="FILE",
        help="The broker's settings, for file sizes, paths and delay levels; else the files tell.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON with stable keys.")]

EXIT_ERRORS = 1
EXIT_UNREADABLE = 2
EXIT_NOT_DONE = 3


def store_config(directory: Path, config_file: Path | None) -> MessageStoreConfig:
    """The settings of the store in ``directory``.

    Raises:
        ConfigError: the settings file is wrong.
        StoreError: the directory is not there.
    """
    if not directory.is_dir():
        what = "is not a directory" if directory.exists() else "does not exist"
        raise StoreError(f"{directory} {what}; a store's directory (with commitlog/ in it) is expected")
    settings = load_broker_settings(config_file, environment={}).store
    return settings.model_copy(update={"store_path_root_dir": str(directory)})


@contextmanager
def reading_a_store() -> Iterator[None]:
    """End with exit code 2 and one line on stderr when there is no store, or it cannot be read."""
    try:
        yield
    except (StoreError, ConfigError, CodecError) as error:
        fail(str(error))
    except OSError as error:  # a broker that has the store open removes files
        # One with a name could not be opened; a descriptor that the disk refused to read or write has none.
        fail(f"{error.filename} cannot be read: {error.strerror}" if error.filename else f"the disk refused: {error}")


def fail(reason: str, exit_code: int = EXIT_UNREADABLE) -> NoReturn:
    """End with one line on stderr.

    Raises:
        typer.Exit: always.
    """
    print("mqstore:", " ".join(reason.split()), file=sys.stderr)
    raise typer.Exit(exit_code)
