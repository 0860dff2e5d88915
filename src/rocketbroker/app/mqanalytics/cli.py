"""The command ``mqanalytics``.

mqanalytics JOB STORE... [OPTION]...

Exit code 0: done; 1: a store or Spark could not be used, the reason is on stderr; 2: wrong usage; 3: an audit found
errors, or a comparison differences; 130: interrupted.
"""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rocketbroker.app.mqanalytics.sub_commands import SUB_COMMANDS, load

_CONTEXT = {"help_option_names": ["-h", "--help"]}


class SubCommandGroup(TyperGroup):
    """Loads the file of a sub-command when it is called or its help is asked for."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """The names, in the order of the documentation."""
        return [*SUB_COMMANDS]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command of that name, None when there is none."""
        return build_command(cmd_name) if cmd_name in SUB_COMMANDS else None


def build_command(name: str) -> Any:
    """A sub-command with its options, as typer runs it."""
    sub_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    sub_app.command(name, help=SUB_COMMANDS[name].summary, context_settings=_CONTEXT)(load(name))
    command = get_command(sub_app)
    command.name = name
    return command


app = typer.Typer(
    cls=SubCommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would cost a tenth of a second at each start
    context_settings=_CONTEXT,
    help="PySpark over the stores of RocketMQ brokers, also while the brokers run.",
)


@app.callback()
def mqanalytics() -> None:
    """PySpark over the stores of RocketMQ brokers, also while the brokers run."""


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqanalytics")


if __name__ == "__main__":
    main()
