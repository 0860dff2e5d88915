"""What the commands that run servers have in common."""

import typer


def server_app() -> typer.Typer:
    """A command with ``-h``, whose errors are told in one line."""
    return typer.Typer(
        add_completion=False,
        rich_markup_mode=None,  # rich would cost a tenth of a second at each start
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
