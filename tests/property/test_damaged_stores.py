"""Bit flips, cuts, zeroed ranges, noise and lost files over every sort of file of a store.

Whatever one file has become, the store opens, or is refused by the file's name; no consumer gets another body than was
put, messages that are missing are named, new ones can be put and read, and the next open finds all of these.
"""

import asyncio
import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.damaged_stores import Template, Trial, apply, choose, kind_of_file

SEED = 20_261_121
SHORT, LONG = 60, 10_000


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Template:
    return Template(tmp_path_factory.mktemp("template"))


def damage_many(template: Template, folder: Path, cases: range) -> Counter[str]:
    """Run cases by their numbers; gives how many of each sort of file ended how."""
    outcomes: Counter[str] = Counter()
    with asyncio.Runner() as runner:
        for number in cases:
            damage = choose(template, random.Random(SEED + number))
            root = template.copy(damage.store, folder / "store")
            apply(damage, root)
            try:
                outcome = runner.run(Trial(template, damage, root).run())
            except Exception as error:
                raise AssertionError(f"case {number}: {damage}") from error
            outcomes[f"{kind_of_file(damage.file)}: {outcome}"] += 1
            shutil.rmtree(root)
    return outcomes


@pytest.mark.long
@pytest.mark.proves("Damage", "any file, any damage")
@pytest.mark.timeout(300)
def test_any_damage_to_one_file(template: Template, tmp_path: Path) -> None:
    outcomes = damage_many(template, tmp_path, range(SHORT))
    assert outcomes.total() == SHORT


@pytest.mark.soak
@pytest.mark.timeout(7200)
def test_many(
    template: Template,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcomes = damage_many(template, tmp_path, range(LONG))
    record_property("cases", outcomes.total())
    with capsys.disabled():
        print(f"\ndamaged stores: seed {SEED}, {outcomes.total()} cases, {dict(outcomes)}")
    assert outcomes.total() == LONG
