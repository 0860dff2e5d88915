import pytest

from rocketbroker.broker.slave.master_names import MasterNames
from rocketbroker.codec.remoting.bodies.data_version import DataVersion


def at(counter, state=0):
    return DataVersion(1, counter, state)


def test_names_that_the_master_had_and_has_no_longer_are_gone():
    names = MasterNames("topics", {"BUILT_IN"})

    assert names.gone(["BUILT_IN"], at(0), ["BUILT_IN", "A", "B"], at(5)) == []
    assert names.gone(["BUILT_IN", "A", "B", "OWN"], at(5), ["A"], at(6)) == ["B"]
    assert names.version(at(5), at(6)) == at(6)


def test_nothing_is_gone_from_an_older_table():
    names = MasterNames("topics")
    names.gone([], at(0), ["A", "B"], at(5))

    assert names.gone(["A", "B"], at(5), ["B"], at(4)) == []
    assert names.version(at(5), at(4)) == at(5, 1)
    assert names.gone(["A", "B"], at(5, 1), ["B"], at(9)) == [], "kept until the master has it again"


def test_names_come_back_with_the_masters_table():
    names = MasterNames("topics")
    names.gone([], at(0), ["A"], at(5))
    names.gone(["A"], at(5), [], at(0))

    assert names.gone(["A"], at(5, 1), ["A"], at(1)) == []
    assert names.version(at(5, 1), at(1)) == at(1)


def test_a_restart_keeps_what_the_master_had_lost():
    assert MasterNames("topics").gone(["A", "B"], at(5, 1), ["B"], at(100)) == []


@pytest.mark.parametrize("names", [["BUILT_IN"], ["BUILT_IN", "C", "D"]])
def test_a_first_answer_without_any_own_name_deletes_nothing(names):
    assert MasterNames("topics", {"BUILT_IN"}).gone(["A", "BUILT_IN"], at(1), names, at(100)) == []


def test_a_name_in_use_is_not_deleted_by_a_first_answer():
    names = MasterNames("topics")

    assert names.gone(["A", "B", "C", "D"], at(1), ["C", "D"], at(100), {"A", "C"}) == ["B"]
    assert names.gone(["A", "C", "D"], at(100), ["D"], at(101), {"A", "C"}) == ["C"], "the master had it"
