from rocketbroker.store.read.cached_windows import CachedWindows
from tests.support.fakes import FakeClock

MIB = 1 << 20


class Kernel:
    """A file of the log of which the page cache has what lies before ``cached``."""

    def __init__(self, begin: int, cached: int, wrote: int = 4 * MIB) -> None:
        self.file_from_offset = begin
        self.wrote = wrote
        self.cached = cached
        self.asked: list[tuple[int, int]] = []

    def is_cached(self, start: int, end: int) -> bool:
        self.asked.append((start, end))
        return end <= self.cached


class TestHolds:
    def test_a_window_is_asked_for_once_a_second(self):
        clock = FakeClock()
        windows, kernel = CachedWindows(clock.monotonic), Kernel(0, 4 * MIB)

        for start in range(MIB, MIB + 5000, 1000):
            assert windows.holds(kernel, start, start + 1000)
        assert kernel.asked == [(MIB, 2 * MIB)]

        clock.advance(1.1)
        assert windows.holds(kernel, MIB, MIB + 1)
        assert kernel.asked == [(MIB, 2 * MIB)] * 2

    def test_what_is_in_part_in_the_cache_is_asked_for_exactly(self):
        windows, kernel = CachedWindows(FakeClock().monotonic), Kernel(0, 1000)

        assert windows.holds(kernel, 0, 1000)
        assert not windows.holds(kernel, 0, 1001)
        assert kernel.asked == [(0, MIB), (0, 1000), (0, MIB), (0, 1001)]

    def test_a_range_may_reach_into_the_next_window(self):
        windows, kernel = CachedWindows(FakeClock().monotonic), Kernel(0, MIB + 10)

        assert not windows.holds(kernel, MIB - 10, MIB + 20)
        assert kernel.asked == [(0, MIB), (MIB, 2 * MIB), (MIB - 10, MIB + 20)]

    def test_nothing_is_asked_about_what_is_not_written_yet(self):
        windows, kernel = CachedWindows(FakeClock().monotonic), Kernel(0, 5000, wrote=5000)

        assert windows.holds(kernel, 100, 200)
        assert kernel.asked == [(0, 5000)]

    def test_files_are_distinguished(self):
        windows, first, second = CachedWindows(FakeClock().monotonic), Kernel(0, 4 * MIB), Kernel(4 * MIB, 0)

        assert windows.holds(first, 0, 10)
        assert not windows.holds(second, 0, 10)
