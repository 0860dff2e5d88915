"""Namespaces, and the start and close of a member of a group."""

import asyncio

import pytest

from rocketbroker.client.core.client_instance import ClientInstance, GroupMember, Namespace
from rocketbroker.client.core.errors import ClientError, ClientStateError

NAMES = [
    ("Orders", "NS%Orders"),
    ("%RETRY%billing", "%RETRY%NS%billing"),
    ("%DLQ%billing", "%DLQ%NS%billing"),
    ("TBW102", "TBW102"),
    ("CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_TRANS"),
    ("%RETRY%CID_RMQ_SYS_TRANS", "%RETRY%CID_RMQ_SYS_TRANS"),
    ("", ""),
]


@pytest.mark.parametrize(("name", "wrapped"), NAMES)
def test_a_name_is_wrapped_once(name: str, wrapped: str):
    namespace = Namespace("NS")
    assert namespace.wrap(name) == wrapped
    assert namespace.wrap(wrapped) == wrapped
    assert namespace.unwrap(wrapped) == name


def test_names_of_other_namespaces_stay():
    assert Namespace("NS").unwrap("Other%Orders") == "Other%Orders"


@pytest.mark.parametrize("name", ["Orders", "NS%Orders", "%RETRY%billing"])
def test_without_a_namespace_names_stay(name: str):
    assert Namespace("").wrap(name) == Namespace("").unwrap(name) == name


class Member(GroupMember):
    """One that says what happens to it; ``leaving`` is how it leaves."""

    kind = "member"

    def __init__(self, client: ClientInstance | None = None, own: ClientInstance | None = None) -> None:
        super().__init__("G", "127.0.0.1:9876", client)
        if own is not None:
            self._client = own
        self.said: list[str] = []
        self.leaving = asyncio.Event()

    def use(self) -> None:
        """Do what is possible while started only."""
        self._check_started()

    def _join(self) -> None:
        self.said.append("joined")

    async def _leave(self) -> None:
        self.said.append("leaves")
        await self.leaving.wait()


class Client(ClientInstance):
    """An instance that counts."""

    def __init__(self) -> None:
        super().__init__("127.0.0.1:9876")
        self.started = self.stopped = 0

    async def start(self) -> None:
        self.started += 1

    async def stop(self) -> None:
        self.stopped += 1


async def test_an_instance_of_its_own_lives_as_long_as_it(monkeypatch):
    client = Client()
    member = Member(own=client)
    member.leaving.set()

    async with member:
        member.use()
        assert (client.started, client.stopped) == (1, 0)
    await member.close()

    assert (client.started, client.stopped, member.said) == (1, 1, ["joined", "leaves"])
    with pytest.raises(ClientError, match="member G is not started, or is closed"):
        member.use()


async def test_one_that_was_closed_does_not_start_again():
    member = Member()
    member.leaving.set()
    await member.start()
    await member.close()
    with pytest.raises(ClientStateError, match="is closed, and so are its connections; make a new one"):
        await member.start()
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_shared_instance_is_left_alone():
    client = Client()
    member = Member(client)
    member.leaving.set()

    async with member:
        pass

    assert (client.started, client.stopped) == (0, 0)


async def test_a_close_that_is_cancelled_goes_on_and_the_next_one_waits_for_it():
    client = Client()
    member = Member(own=client)
    await member.start()

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await member.close()
    second = asyncio.create_task(member.close())
    await asyncio.sleep(0)

    assert (client.stopped, second.done()) == (0, False)
    member.leaving.set()
    await second
    assert (client.stopped, member.said) == (1, ["joined", "leaves"])


async def test_a_member_on_a_shared_instance_starts_and_closes_again():
    member = Member(Client())
    member.leaving.set()
    for _ in range(2):
        async with member:
            member.use()
    assert member.said == ["joined", "leaves"] * 2


async def test_a_member_that_cannot_join_stops_its_instance(monkeypatch: pytest.MonkeyPatch):
    client = Client()
    member = Member(own=client)
    monkeypatch.setattr(member, "_join", lambda: print(1 / 0))
    with pytest.raises(ZeroDivisionError):
        await member.start()
    await member.close()
    assert (client.started, client.stopped, member.said) == (1, 1, [])


async def test_a_member_is_refused_in_another_event_loop_and_stays_open():
    client = ClientInstance("127.0.0.1:9876")
    member = Member(own=client)
    member.leaving.set()

    async def use() -> None:
        for call in (member.start, member.close, client.start, client.stop):
            with pytest.raises(ClientStateError, match="belongs to another event loop; make one in this loop"):
                await call()
        with pytest.raises(ClientStateError, match="member G belongs to another event loop"):
            member.use()

    async with member:
        await asyncio.to_thread(asyncio.run, use())
        member.use()
    assert member.said == ["joined", "leaves"]
