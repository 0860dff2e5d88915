"""Each fault fits the code as it is, and the test it names fails with it."""

from collections import Counter

import pytest

from tests.mutations.faults import MUTATIONS
from tests.mutations.mutant import LIMIT_S, ROOT, Mutation, failure_with, mutated

NAMES = [mutation.name for mutation in MUTATIONS]


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_a_mutation_changes_the_code_in_one_place(mutation: Mutation):
    path, text = mutated(mutation)

    compile(text, path, "exec")
    assert (ROOT / mutation.test.partition("::")[0]).is_file()


def test_names_are_unique():
    assert len(set(NAMES)) == len(NAMES)


def test_each_property_test_detects_a_mutation():
    seen = Counter(mutation.test.partition("::")[0] for mutation in MUTATIONS)
    assert {f"tests/property/{path.name}" for path in (ROOT / "tests" / "property").glob("test_*.py")} <= seen.keys()


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=NAMES)
def test_a_mutation_is_detected(mutation: Mutation):
    assert failure_with(mutation), f"{mutation.test} passes although {mutation.name}"
