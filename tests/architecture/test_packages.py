"""The wheel has every package of src/."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_has_every_package():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(packed) == sorted(f"src/{path.parent.name}" for path in (ROOT / "src").glob("*/__init__.py"))
