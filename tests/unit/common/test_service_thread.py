import threading

from rocketbroker.common import lifecycle
from rocketbroker.common.lifecycle import ServiceThread


def test_what_comes_while_the_last_action_runs_is_acted_on_before_the_stop():
    entered, go = threading.Event(), threading.Event()
    work: list[int] = [1]
    done: list[list[int]] = []

    def act() -> None:
        taken = list(work)
        entered.set()
        assert go.wait(60)
        done.append(taken)

    thread = ServiceThread("Slow", 60, act)
    thread.start()
    thread.wakeup()
    assert entered.wait(60)
    work.append(2)
    stopping = threading.Thread(target=thread.stop)
    stopping.start()
    while not thread._stopped:
        pass
    go.set()
    stopping.join(60)

    assert not stopping.is_alive()
    assert done[-1] == [1, 2]


def test_an_error_is_logged_and_the_thread_continues(caplog):
    calls = threading.Semaphore(0)

    def fail() -> None:
        calls.release()
        raise ValueError("no luck")

    thread = ServiceThread("Unlucky", 60, fail)
    thread.start()
    thread.wakeup()
    assert calls.acquire(timeout=60)
    thread.wakeup()
    assert calls.acquire(timeout=60)
    thread.stop()

    assert "Unlucky failed; it continues" in caplog.text
    assert "no luck" in caplog.text


def test_a_thread_that_never_began_may_be_stopped():
    ServiceThread("Never", 60, lambda: None).stop()


def test_an_idle_thread_sleeps_on_until_it_is_woken(monkeypatch):
    monkeypatch.setattr(lifecycle, "IDLE_S", 60)
    calls: list[bool] = []
    acted = threading.Semaphore(0)

    def act() -> bool:
        calls.append(thread._work.is_set())
        acted.release()
        return len(calls) >= 3

    thread = ServiceThread("Seldom", 0.001, act)
    thread.start()
    for _ in range(3):
        assert acted.acquire(timeout=60)
    while not thread._is_idle:
        pass
    assert not acted.acquire(timeout=0.05)
    thread.wake_idle()
    assert acted.acquire(timeout=60)
    thread.stop()


def test_a_busy_thread_is_left_to_its_interval():
    calls: list[None] = []
    thread = ServiceThread("Busy", 60, lambda: calls.append(None))
    thread.start()
    thread.wake_idle()

    assert not thread._work.is_set()
    thread.stop()
    assert len(calls) == 1
