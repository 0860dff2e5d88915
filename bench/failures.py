"""Failures that end a benchmark."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from bench.raw_load import LoadError
from bench.servers import ServerError
from tests.support.java_toolchain import JavaError


@contextmanager
def failures_reported(name: str, *others: type[Exception]) -> Iterator[None]:
    """Report the failure of a load, a server or Java, or one of ``others``, by a line and exit status 1."""
    expected: tuple[type[Exception], ...] = (JavaError, LoadError, ServerError, *others)
    try:
        yield
    except expected as error:
        print(f"{name}: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
