import threading

import pytest

from rocketbroker.store.commitlog.put_message import PutMessageStatus
from rocketbroker.store.flush.write_refusal import Refusal, StandingRefusals


def current(refusals: StandingRefusals) -> tuple[PutMessageStatus, str] | None:
    return None if refusals.current is None else (refusals.current.status, refusals.current.reason)


def test_nothing_is_rejected_at_first():
    refusals = StandingRefusals()

    assert refusals.current is None
    assert refusals.reason(Refusal.DISK_FULL) == ""
    refusals.clear(Refusal.DISK_FULL)
    assert refusals.current is None


def test_an_owner_ends_its_own_cause_alone():
    refusals = StandingRefusals()
    refusals.set(Refusal.DISK_FULL, "91 %")
    refusals.set(Refusal.READ_ONLY, "EIO")
    assert current(refusals) == (PutMessageStatus.READ_ONLY, "EIO")
    assert not refusals.only(Refusal.READ_ONLY)

    refusals.clear(Refusal.READ_ONLY)

    assert current(refusals) == (PutMessageStatus.DISK_FULL, "91 %")
    assert refusals.only(Refusal.DISK_FULL)
    assert refusals.reason(Refusal.READ_ONLY) == ""
    refusals.set(Refusal.DISK_FULL, "92 %")
    assert current(refusals) == (PutMessageStatus.DISK_FULL, "92 %")
    refusals.clear(Refusal.DISK_FULL)
    assert refusals.current is None


@pytest.mark.parametrize("order", [1, -1])
def test_the_most_severe_reason_counts_in_any_order(order: int):
    refusals = StandingRefusals()
    for refusal in list(Refusal)[::order]:
        refusals.set(refusal, refusal.name)

    told = []
    for refusal in Refusal:
        told.append(current(refusals))
        refusals.clear(refusal)

    assert told == [(refusal.value, refusal.name) for refusal in Refusal]
    assert refusals.current is None


def test_threads_do_not_end_each_others_causes():
    refusals = StandingRefusals()
    refusals.set(Refusal.NOT_DISPATCHED, "stays")

    def come_and_go(refusal: Refusal) -> None:
        for _ in range(2000):
            refusals.set(refusal, "comes")
            refusals.clear(refusal)

    threads = [
        threading.Thread(target=come_and_go, args=(refusal,)) for refusal in (Refusal.READ_ONLY, Refusal.DISK_FULL)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert current(refusals) == (PutMessageStatus.NOT_DISPATCHED, "stays")
