import threading

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
