"""Each property test and soak fails when what it is about is broken."""

import pytest

from tests.support.mutations import LIMIT_S, MUTATIONS, Mutation, failure_with


@pytest.mark.soak
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_a_mutation_is_detected(mutation: Mutation):
    assert failure_with(mutation), f"{mutation.test} passes although {mutation.name}"
