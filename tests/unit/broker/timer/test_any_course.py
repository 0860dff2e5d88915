"""Any course of sends, recalls, restarts, kills and jumps of the clock, against what a model says of it."""

import random

import pytest

from tests.support.timers import Timer

pytestmark = [
    pytest.mark.proves("When the store is opened", "6. timer messages"),
    pytest.mark.proves(
        "Delayed messages",
        "any course of sends, recalls, restarts, kills and jumps of the clock: nothing early or lost, after a"
        " clean restart nothing twice",
    ),
]

STEPS = 60


class Course:
    """Course of one timer.

    Attributes:
        due: by body, the earliest time at which it may be delivered.
        recalled: bodies that must never be.
        killed: whether a message may be delivered twice.
    """

    def __init__(self, seed, again, clock):
        self.random = random.Random(seed)
        self.again = again
        self.clock = clock
        self.due: dict[bytes, int] = {}
        self.recalled: set[bytes] = set()
        self.killed = False
        self.timer: Timer

    async def run(self):
        self.timer = await self.start()
        for _ in range(STEPS):
            step = self.random.choice([self.send] * 6 + [self.recall, self.wait, self.wait, self.jump, self.write])
            await step()
            if self.random.random() < 0.15:
                await self.random.choice([self.stop, self.kill])()
            self.check()
        self.clock.advance(8 * 86_400)
        await self.timer.run()
        self.check()

    async def start(self):
        return await self.again(timer_roll_window_slot=1000, timer_max_delay_sec=7 * 86_400)

    async def send(self):
        delay_ms = self.random.choice([1, 900, 5000, 61_000, 700_000, 1_300_000, 90_000_000]) + self.random.randrange(
            3000
        )
        body = b"%d" % len(self.due)
        self.timer.put(body, TIMER_DELAY_MS=delay_ms, UNIQ_KEY=body.decode())
        self.due[body] = self.clock.time_ms() + delay_ms

    async def recall(self):
        waiting = [
            body for body in self.due if body not in self.bodies() and self.due[body] > self.clock.time_ms() + 2000
        ]
        if waiting:
            body = self.random.choice(waiting)
            # As a handle has it: the slot of the message.
            slot_ms = (self.due[body] - 1) // 1000 * 1000
            self.timer.put(b"0", TIMER_DEL_UNIQKEY=body.decode(), TIMER_DELIVER_MS=slot_ms + 1)
            self.recalled.add(body)

    async def wait(self):
        self.clock.advance(self.random.choice([0.3, 2, 30, 600]))
        await self.timer.run()

    async def jump(self):
        self.clock.advance(self.random.choice([-4000, -70, 5000, 86_400]))
        await self.timer.run()

    async def write(self):
        await self.timer.run()
        await self.timer.service.write()
        await self.timer.service.remove_delivered_files()

    async def stop(self):
        await self.timer.stop()
        self.timer = await self.start()

    async def kill(self):
        self.killed = True
        self.timer = await self.start()

    def bodies(self):
        return [message.body for message in self.timer.delivered()]

    def check(self):
        delivered = self.timer.delivered()
        assert all(message.store_timestamp >= self.due[message.body] for message in delivered), "early"
        found = [message.body for message in delivered]
        assert self.recalled.isdisjoint(found)
        if not self.killed:
            assert len(found) == len(set(found)), "twice"

    def check_end(self):
        assert set(self.bodies()) == self.due.keys() - self.recalled, "lost"


@pytest.mark.parametrize("seed", range(12))
async def test_nothing_is_early_lost_or_after_a_stop_twice(again, clock, seed):
    course = Course(seed, again, clock)
    await course.run()
    course.check_end()
    assert len(course.due) > STEPS // 4


@pytest.mark.parametrize("seed", range(100, 106))
async def test_without_a_kill_nothing_is_twice(again, clock, seed, monkeypatch):
    monkeypatch.setattr(Course, "kill", Course.stop)
    course = Course(seed, again, clock)
    await course.run()
    course.check_end()
    assert not course.killed
