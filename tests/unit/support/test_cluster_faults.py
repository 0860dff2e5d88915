"""The plan of random faults."""

from collections import Counter

from tests.support.cluster_faults import FAULTS, FAULTS_A_RUN, ON_ONE_LINK, plan

RUNS = 200


def test_each_kind_of_fault_comes_often_enough():
    times = Counter(fault for seed in range(RUNS) for fault in plan(seed))

    assert set(times) == set(FAULTS)
    assert min(times.values()) >= 10
    assert sum(times.values()) == RUNS * FAULTS_A_RUN


def test_a_plan_leaves_out_what_the_machine_cannot_do():
    for seed in range(len(FAULTS)):
        faults = plan(seed, ON_ONE_LINK)

        assert len(faults) == FAULTS_A_RUN
        assert set(faults) <= set(ON_ONE_LINK)
