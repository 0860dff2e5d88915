"""The mutations fit the code as it is."""

from collections import Counter
from pathlib import Path

import pytest

from tests.support.mutations import MUTATIONS, ROOT, SOURCES, Mutation, mutate


@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_mutation_changes_the_code_in_one_place(mutation: Mutation, tmp_path: Path):
    original = (ROOT / SOURCES / mutation.file).read_text()
    copy = tmp_path / mutation.file
    copy.parent.mkdir(parents=True)
    copy.write_text(original)

    mutate(mutation, tmp_path)

    assert copy.read_text() != original
    compile(copy.read_text(), mutation.file, "exec")
    assert (ROOT / mutation.test.partition("::")[0]).is_file()


def test_each_property_test_detects_a_mutation():
    seen = Counter(mutation.test.partition("::")[0] for mutation in MUTATIONS)
    files = {f"tests/property/{path.name}" for path in (ROOT / "tests" / "property").glob("test_*.py")}
    assert files <= seen.keys() | {"tests/property/test_mutations.py"}
