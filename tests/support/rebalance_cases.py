"""Random inputs of the allocation strategies, the same on every machine and Python."""

import random
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from rocketbroker.client.consumer.rebalance import (
    AllocateMachineRoomNearby,
    AllocateMessageQueueAveragely,
    AllocateMessageQueueAveragelyByCircle,
    AllocateMessageQueueByConfig,
    AllocateMessageQueueByMachineRoom,
    AllocateMessageQueueConsistentHash,
    AllocateMessageQueueStrategy,
)
from rocketbroker.codec.message.message_ext import MessageQueue

ANSWERS = Path(__file__).resolve().parent.parent / "golden" / "rebalance" / "java-5.5.0.txt"
NUMBER = 3000
STRATEGIES = ("AVG", "AVG_BY_CIRCLE", "CONFIG", "CONSISTENT_HASH", "MACHINE_ROOM", "MACHINE_ROOM_NEARBY")
INNER = ("AVG", "AVG_BY_CIRCLE", "CONSISTENT_HASH")
ROOMS = ("north", "south", "R3", "süd", "a b")
BROKERS = ("broker-a", "b", "Broker_9", "x@y", "z@")


class Case(NamedTuple):
    """One input; ``option`` is a number of virtual nodes, a list of rooms or queue indexes, or an inner strategy."""

    strategy: str
    option: str
    queues: list[MessageQueue]
    clients: list[str]

    def line(self) -> str:
        """Return the case as the Java driver reads it."""
        queues = ",".join(f"{queue.broker_name}:{queue.queue_id}" for queue in self.queues)
        return "\t".join([self.strategy, self.option, self.queues[0].topic, queues, ",".join(self.clients)])

    def answer(self) -> str:
        """Return the indexes of the queues of each client, by our strategies, as the Java driver prints them."""
        strategy = self._strategy()
        shares = (strategy.allocate(client, self.queues, self.clients) for client in self.clients)
        return "|".join(",".join(str(self.queues.index(queue)) for queue in share) for share in shares)

    def _strategy(self) -> AllocateMessageQueueStrategy:
        match self.strategy:
            case "CONFIG":
                return AllocateMessageQueueByConfig(
                    self.queues[int(index)] for index in filter(None, self.option.split(","))
                )
            case "CONSISTENT_HASH":
                return AllocateMessageQueueConsistentHash(int(self.option))
            case "MACHINE_ROOM":
                return AllocateMessageQueueByMachineRoom(self.option.split(","))
            case "MACHINE_ROOM_NEARBY":
                return AllocateMachineRoomNearby(_simple(self.option), Resolver())
        return _simple(self.strategy)


def _simple(name: str) -> AllocateMessageQueueStrategy:
    made: tuple[AllocateMessageQueueStrategy, ...] = (
        AllocateMessageQueueAveragely(),
        AllocateMessageQueueAveragelyByCircle(),
        AllocateMessageQueueConsistentHash(),
    )
    return next(each for each in made if each.name == name)


class Resolver:
    """Takes the part before the first ``@`` as the room, as the Java driver does."""

    def broker_room(self, queue: MessageQueue) -> str:
        return queue.broker_name.partition("@")[0]

    def consumer_room(self, client_id: str) -> str:
        return client_id.partition("@")[0]


@cache
def cases() -> list[Case]:
    return list(_cases(random.Random(2026).random))


def _cases(rand: Callable[[], float]) -> Iterator[Case]:
    def below(number: int) -> int:
        return int(rand() * number)  # random() alone gives the same numbers on every version of Python

    for number in range(NUMBER):
        strategy = STRATEGIES[number % len(STRATEGIES)]
        topic = f"Topic-{below(1000)}"
        names = sorted(
            {f"{ROOMS[below(5)]}@{BROKERS[below(5)]}" if below(8) else BROKERS[below(5)] for _ in range(1 + below(5))}
        )
        queues = [MessageQueue(topic, name, index) for name in names for index in range(1 + below(9))]
        clients = sorted(
            {f"{ROOMS[below(5)]}@10.0.{below(3)}.{below(250)}#{below(99999)}" for _ in range(1 + below(12))}
        )
        option = {
            "CONFIG": ",".join(str(below(len(queues))) for _ in range(below(4))),
            "CONSISTENT_HASH": str((10, 10, 1, 3, 50, 0)[below(6)]),
            "MACHINE_ROOM": ",".join(sorted({ROOMS[below(5)] for _ in range(1 + below(4))})),
            "MACHINE_ROOM_NEARBY": INNER[below(3)],
        }.get(strategy, "")
        yield Case(strategy, option, queues, clients)
