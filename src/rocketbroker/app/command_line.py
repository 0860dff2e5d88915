"""Options and behaviour that all commands share: ``-h``, ``--version``, shell completion, one-line errors."""

from typing import Annotated, Any, Final

import typer

from rocketbroker import __version__

INSTALL_ANALYTICS: Final = "pip install 'rocketbroker[analytics]'"
CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


def new_app(**options: Any) -> typer.Typer:
    """Return a typer command with the shared behaviour; ``options`` are typer's own."""
    return typer.Typer(
        rich_markup_mode=None,  # importing rich would add 0.1 s to each start
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
        **options,
    )


def _print_version(ctx: typer.Context, value: bool) -> None:
    if value:
        print(f"{ctx.find_root().info_name} {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
]
