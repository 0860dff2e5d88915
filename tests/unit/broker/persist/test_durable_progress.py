import random
from types import SimpleNamespace

import pytest

from rocketbroker.broker.persist.durable_progress import DurableProgress, TableChanges

pytestmark = [
    pytest.mark.proves("Tables", "refused changes"),
]


def test_progress_is_kept_back_until_its_copies_are_on_disk():
    log = SimpleNamespace(max_offset=100, flushed_offset=50)
    progress = DurableProgress(log, 0)
    progress.made(1)
    log.max_offset = 200
    progress.made(2)
    assert (progress.advance(), progress.value, progress.is_behind) == (False, 0, True)
    log.flushed_offset = 199
    assert (progress.advance(), progress.value, progress.is_behind) == (True, 1, True)
    log.flushed_offset = 200
    assert (progress.advance(), progress.value, progress.is_behind) == (True, 2, False)
    assert not progress.advance()


def test_progress_that_stored_nothing_takes_the_place_of_what_was_made_before():
    log = SimpleNamespace(max_offset=100, flushed_offset=0)
    progress = DurableProgress(log, 0)
    progress.made(1)
    progress.made(2)
    log.flushed_offset = 100
    assert (progress.advance(), progress.value, progress.is_behind) == (True, 2, False)


def test_another_value_ends_what_waits():
    log = SimpleNamespace(max_offset=100, flushed_offset=0)
    progress = DurableProgress(log, 0)
    progress.made(1)
    progress.replace(7)
    log.flushed_offset = 100
    assert (progress.advance(), progress.value) == (False, 7)


def test_a_refused_write_goes_back_to_what_the_disk_has():
    table = {"kept": "k", "changed": "old", "removed": "r"}
    changes = TableChanges(table)
    changes.put("new", "n")
    changes.put("changed", "first")
    changes.put("changed", "second")
    changes.put("removed", None)
    assert table == {"kept": "k", "changed": "second", "new": "n"}
    assert (changes.on_disk("changed"), changes.on_disk("new"), changes.on_disk("removed")) == ("old", None, "r")
    changes.begin_write()
    assert changes.refused() == ["new", "changed", "removed"]
    assert table == {"kept": "k", "changed": "old", "removed": "r"}


def test_an_entry_changed_again_during_the_write_is_not_undone():
    table: dict[str, str] = {}
    changes = TableChanges(table)
    changes.put("again", "first")
    changes.put("once", "o")
    changes.begin_write()
    changes.put("again", "second")
    assert changes.refused() == ["once"]
    assert table == {"again": "second"}
    changes.begin_write()
    assert changes.refused() == ["again"]
    assert table == {}


def test_one_removed_again_after_it_was_made_again_stays_removed():
    table = {"a": "old"}
    changes = TableChanges(table)
    changes.put("a", None)
    changes.begin_write()
    changes.put("a", "made again")
    changes.put("a", None)
    assert changes.refused() == []
    assert table == {}
    changes.begin_write()
    assert changes.written() == {"a": None}
    changes.begin_write()
    assert changes.refused() == []


def test_a_write_covers_what_was_changed_before_it_began():
    table = {"a": "old"}
    changes = TableChanges(table)
    changes.put("a", "first")
    changes.begin_write()
    changes.put("a", "second")
    assert changes.written() == {"a": "first"}
    assert changes.on_disk("a") == "first"
    changes.begin_write()
    assert changes.refused() == ["a"]
    assert table == {"a": "first"}


def test_any_order_of_changes_and_writes_leaves_memory_and_disk_alike():
    chance = random.Random(7)
    for _ in range(300):
        table: dict[str, int] = {}
        disk: dict[str, int] = {}
        changes = TableChanges(table)
        writing: dict[str, int] | None = None
        for number in range(40):
            match chance.choice(["put", "put", "remove", "begin", "written", "refused"]):
                case "put":
                    changes.put(chance.choice("abc"), number)
                case "remove":
                    changes.put(chance.choice("abc"), None)
                case "begin" if writing is None:
                    changes.begin_write()
                    writing = dict(table)
                case "written" if writing is not None:
                    changes.written()
                    disk, writing = writing, None
                case "refused" if writing is not None:
                    changes.refused()
                    writing = None
            if writing is None:
                assert {name: changes.on_disk(name) for name in "abc"} == {name: disk.get(name) for name in "abc"}
        if writing is not None:
            changes.refused()
        changes.begin_write()
        changes.refused()
        assert table == disk
