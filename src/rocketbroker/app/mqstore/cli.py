"""The command ``mqstore``.

mqstore check DIR | dump WHAT DIR | repair DIR

Exit code 0: done, no error was found; 1: errors were found; 2: there is no store, it cannot be read, or wrong usage;
3: repair was not told --yes.
"""

import typer

from rocketbroker.app.mqstore.sub_commands import COMMANDS, DUMP_COMMANDS

_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _group(summary: str) -> typer.Typer:
    return typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich would cost a tenth of a second at each start
        context_settings=_CONTEXT,
        help=summary,
    )


app = _group("Check, show and repair the files of a RocketMQ store that no broker has open.")
_dump = _group("Show what files of a store hold.")
app.add_typer(_dump, name="dump")
for _name, _command in COMMANDS.items():
    app.command(_name, context_settings=_CONTEXT)(_command)
for _name, _command in DUMP_COMMANDS.items():
    _dump.command(_name, context_settings=_CONTEXT)(_command)


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqstore")


if __name__ == "__main__":
    main()
