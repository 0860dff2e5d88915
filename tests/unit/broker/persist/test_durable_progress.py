from types import SimpleNamespace

from rocketbroker.broker.persist.durable_progress import DurableProgress


def test_progress_is_kept_back_until_its_copies_are_on_disk():
    store = SimpleNamespace(max_physical_offset=100, flushed_offset=50)
    progress = DurableProgress(store, 0)
    progress.made(1)
    store.max_physical_offset = 200
    progress.made(2)
    assert (progress.advance(), progress.value, progress.is_behind) == (False, 0, True)
    store.flushed_offset = 199
    assert (progress.advance(), progress.value, progress.is_behind) == (True, 1, True)
    store.flushed_offset = 200
    assert (progress.advance(), progress.value, progress.is_behind) == (True, 2, False)
    assert not progress.advance()


def test_progress_that_stored_nothing_takes_the_place_of_what_was_made_before():
    store = SimpleNamespace(max_physical_offset=100, flushed_offset=0)
    progress = DurableProgress(store, 0)
    progress.made(1)
    progress.made(2)
    store.flushed_offset = 100
    assert (progress.advance(), progress.value, progress.is_behind) == (True, 2, False)


def test_another_value_ends_what_waits():
    store = SimpleNamespace(max_physical_offset=100, flushed_offset=0)
    progress = DurableProgress(store, 0)
    progress.made(1)
    progress.replace(7)
    store.flushed_offset = 100
    assert (progress.advance(), progress.value) == (False, 7)
