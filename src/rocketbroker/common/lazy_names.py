"""Public names of a package that load their modules on first use."""

import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class LazyNames(NamedTuple):
    """``__getattr__``, ``__dir__`` and ``__all__`` of a package."""

    getattr: Callable[[str], Any]
    dir: Callable[[], list[str]]
    all: list[str]


def lazy_names(package: str, homes: Mapping[str, str], optional: Collection[str] = ()) -> LazyNames:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package.

    Args:
        package: its ``__name__``.
        homes: module of each name, relative to the package: ``.producer``, ``..common.errors``.
        optional: modules that need an extra; ``import *`` leaves their names out.
    """

    def attribute(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(homes[name], package), name)

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *homes})

    return LazyNames(attribute, names, [name for name, home in homes.items() if home not in optional])
