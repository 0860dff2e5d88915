"""Short, unique labels of axes and series."""

from collections.abc import Sequence
from typing import Final

_LONGEST: Final = 30
_TAIL: Final = 8


def cut(name: str) -> str:
    """Shorten a name in the middle to fit beside a figure."""
    if len(name) <= _LONGEST:
        return name
    return f"{name[: _LONGEST - _TAIL - 1]}…{name[-_TAIL:]}"


def unique(labels: Sequence[str]) -> list[str]:
    """Number repeated labels, since a category axis merges equal ones."""
    seen: dict[str, int] = {}
    found = []
    for label in labels:
        seen[label] = seen.get(label, 0) + 1
        found.append(label if seen[label] == 1 else f"{label} ({seen[label]})")
    return found
