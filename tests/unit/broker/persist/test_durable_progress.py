from types import SimpleNamespace

from rocketbroker.broker.persist.durable_progress import DurableProgress


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
