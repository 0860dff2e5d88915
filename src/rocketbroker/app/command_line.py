"""Options and behaviour that all commands share: ``-h``, ``--version``, shell completion, one-line errors, and
sub-commands whose modules are imported when they run.
"""

import errno
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rocketbroker import __version__

INSTALL_ANALYTICS: Final = "pip install 'rocketbroker[analytics]'"
CONTEXT: Final = {"help_option_names": ["-h", "--help"]}
# What a shell reports of a command that SIGPIPE ended: nobody reads the rest.
EXIT_CLOSED_PIPE: Final = 141
# Errors of a write to what is open already, as stdout is.
_UNWRITABLE: Final = {errno.EBADF, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC}
# Summaries are checked against this by a test, and so never cut.
_LONGEST_SUMMARY: Final = 200
# Below this width help shows summaries under the names, not beside them.
_LEAST_BESIDE: Final = 60
_LEAST_WIDTH: Final = 20


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


Check = Annotated[
    bool,
    typer.Option("--check", help="Ask the server of these settings, on this machine, if it is ready; end with 0 or 1."),
]


class SubCommand(NamedTuple):
    """A sub-command: its module in the command's package, its one-line summary and its function."""

    module: str
    summary: str
    function: str = "command"

    def load(self, package: str | None) -> Callable[..., None]:
        """Import the function."""
        found: Callable[..., None] = getattr(import_module(f"{package}.{self.module}"), self.function)
        return found


def _only_version(version: Version = False) -> None:
    pass


def lazy_app(
    commands: Mapping[str, SubCommand],
    load: Callable[[str], Callable[..., None]],
    summary: str,
    root: Callable[..., None] = _only_version,
    sections: Sequence[tuple[str, Sequence[str]]] = (),
) -> typer.Typer:
    """Return a command with ``commands`` in this order, followed by those added later.

    Args:
        commands: the sub-commands by name.
        load: imports a sub-command and returns its function.
        summary: first line of the help.
        root: has the options that stand before the name of a sub-command as its parameters.
        sections: headings of the help with the names below each; names in none of them come last.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            # Help, suggestions and completion need names and summaries only.
            self.commands = {name: TyperCommand(name, help=each.summary) for name, each in commands.items()} | dict(
                self.commands
            )

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            _take_texts_as_they_are(self.get_params(ctx))
            return super().parse_args(ctx, args)

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in commands:
                command = _built(name, load(name))
            return name, command, rest

        def format_help(self, ctx: Any, formatter: Any) -> None:
            _fit(formatter)
            super().format_help(ctx, formatter)

        def format_options(self, ctx: Any, formatter: Any) -> None:
            if formatter.width >= _LEAST_BESIDE:
                super().format_options(ctx, formatter)
                return
            _write_options_below(self, ctx, formatter)
            self.format_commands(ctx, formatter)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            listed = {name for _, names in sections for name in names}
            others = [name for name in self.list_commands(ctx) if name not in listed]
            for heading, names in [*sections, ("More" if sections else "Commands", others)]:
                rows = [(name, self.commands[name].get_short_help_str(_LONGEST_SUMMARY)) for name in names]
                with formatter.section(heading):
                    _write_summaries(formatter, rows)

        def invoke(self, ctx: Any) -> Any:
            try:
                done = super().invoke(ctx)
                sys.stdout.flush()
            except BrokenPipeError as error:
                _drop_output()
                raise typer.Exit(EXIT_CLOSED_PIPE) from error
            return done

    app = new_app(cls=LazyGroup, no_args_is_help=True, help=summary)

    app.callback(help=summary)(root)
    return app


def _write_summaries(formatter: Any, rows: Sequence[tuple[str, str]]) -> None:
    """Write names with their summaries beside them, or below them on a narrow terminal."""
    if formatter.width >= _LEAST_BESIDE:
        formatter.write_dl(rows, col_max=_LEAST_BESIDE // 2 + 10)
        return
    for name, summary in rows:
        formatter.write_text(name)
        with formatter.indentation():
            formatter.write_text(summary)


def _fit(formatter: Any) -> None:
    """Let help fit a terminal of less than 50 columns, which typer takes to be wider."""
    formatter.width = max(min(formatter.width, get_terminal_size().columns - 2), _LEAST_WIDTH)


def _write_options_below(command: Any, ctx: Any, formatter: Any) -> None:
    """Write arguments and options for a narrow terminal, each with its help below it."""
    for heading, kind in (("Arguments", "argument"), ("Options", "option")):
        found = [each.get_help_record(ctx) for each in command.get_params(ctx) if each.param_type_name == kind]
        if rows := [row for row in found if row is not None]:
            with formatter.section(heading):
                _write_summaries(formatter, rows)


def run_app(app: typer.Typer, name: str) -> None:
    """Run a command as a process: when the reader of a pipe is gone, end without a word.

    Output that cannot be written is one line on stderr and exit code 1. Output that is still buffered would otherwise
    fail as the interpreter ends, which prints a traceback.
    """
    _open_closed_streams()
    try:
        try:
            app(prog_name=name)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        raise SystemExit(EXIT_CLOSED_PIPE) from None
    except OSError as error:
        if error.filename is not None or error.errno not in _UNWRITABLE:
            raise
        _drop_output()
        print(f"{name}: the output cannot be written: {error.strerror}", file=sys.stderr)
        raise SystemExit(1) from None


def _open_closed_streams() -> None:
    """Replace standard streams that the caller has closed, as ``>&-`` does in a shell, so that none is None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - stays open


def _drop_output() -> None:
    """Let what is still buffered for stdout go nowhere."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)


def _built(name: str, function: Callable[..., None]) -> Any:
    """Build a sub-command with its options, as typer runs it."""
    sub_app = new_app(add_completion=False)
    sub_app.command(name, cls=_QuickCommand, context_settings=CONTEXT)(function)
    command = get_command(sub_app)
    command.name = name
    for param in command.params:
        if param.param_type_name == "argument":
            _show_plainly(param)
    return command


def _show_plainly(argument: Any) -> None:
    """Let help name an argument by its metavar alone: typer adds braces and the type in Python."""
    name = argument.metavar or argument.name.upper()
    name += "..." if argument.nargs != 1 and not name.endswith("...") else ""
    record = argument.get_help_record
    argument.get_usage_pieces = lambda _ctx: [name if argument.required else f"[{name}]"]
    argument.get_help_record = lambda ctx: (name, record(ctx)[1])


class _QuickCommand(TyperCommand):
    """A command whose texts and flags are not converted, and whose help fits a narrow terminal."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        _fit(formatter)
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        if formatter.width >= _LEAST_BESIDE:
            super().format_options(ctx, formatter)
        else:
            _write_options_below(self, ctx, formatter)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _take_texts_as_they_are(self.get_params(ctx))
        return super().parse_args(ctx, args)


def _take_texts_as_they_are(params: Sequence[Any]) -> None:
    """Let texts, flags and defaults enter without conversion: typer converts by pydantic, whose import takes 80 ms.

    A value that needs a conversion or a check still gets it, and so does every value in a typer that keeps its types
    elsewhere.
    """
    for param in params:
        kind = getattr(getattr(param, "type_descriptor", None), "annotation", None)
        if not isinstance(param.process_value, partial) and param.nargs == 1 and not getattr(param, "multiple", True):
            param.process_value = partial(_process_value, param, kind, param.process_value)


def _process_value(param: Any, kind: object, convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    if value is None:
        needs_nothing = not param.required
    else:
        needs_nothing = (kind is str and type(value) is str) or value is param.default
    if not needs_nothing:
        return convert(ctx, value)
    return value if param.callback is None else param.callback(ctx, param, value)
