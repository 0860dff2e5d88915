"""``mqadmin bench``: rates and latencies of a cluster under loads of this machine."""

import asyncio
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Annotated, NamedTuple

import typer

from rocketbroker.app.mqadmin.bench_loads import FIGURES, LEAST_SIZE, SENDING, Load, Loads, LoadSettings, Outcome
from rocketbroker.app.mqadmin.command import Report, Topic, ask_each, print_error, sub_command, with_hint
from rocketbroker.app.terminal import Column, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.client_instance import ClientInstance
from rocketbroker.client.core.errors import ClientError, TopicRouteError
from rocketbroker.client.core.message import MAX_MESSAGE_SIZE, check_topic
from rocketbroker.client.producer.producer import Producer
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.common.errors import RocketBrokerError

_GROUP = "MQADMIN_BENCH"
_NO_COMPRESSION = 2**31 - 1
_REGISTERED_LIMIT_S = 10.0
_LOOK_S = 0.05
_BUSY = 0.9  # share of a CPU from which on the client is likely to be the limit


@sub_command("bench", "Measure rates and latencies of sends and deliveries.")
async def bench(
    admin: AdminClient,
    topic: Topic,
    loads: Annotated[
        str,
        typer.Option(
            "-l", "--loads", metavar="LOAD,...", help="Loads to run, in the order sync, async, batch, consume, e2e."
        ),
    ] = "sync,async,batch,consume,e2e",
    duration: Annotated[
        float, typer.Option("-d", "--duration", min=0.1, max=86400, metavar="SECONDS", help="Length of each load.")
    ] = 5,
    messages: Annotated[
        int | None, typer.Option("-m", "--messages", min=1, metavar="COUNT", help="End each load after these messages.")
    ] = None,
    size: Annotated[
        int,
        typer.Option("-s", "--size", min=LEAST_SIZE, max=MAX_MESSAGE_SIZE, metavar="BYTES", help="Size of a body."),
    ] = 1024,
    tasks: Annotated[
        int, typer.Option("-w", "--tasks", min=1, max=4096, metavar="COUNT", help="Sends at a time in sync and batch.")
    ] = 16,
    in_flight: Annotated[
        int, typer.Option("-f", "--inFlight", min=1, max=10_000, metavar="COUNT", help="Sends at a time in async.")
    ] = 256,
    batch: Annotated[
        int, typer.Option("-b", "--batch", min=1, max=10_000, metavar="COUNT", help="Messages of a batch.")
    ] = 32,
    rate: Annotated[
        float, typer.Option("-r", "--rate", min=0.1, max=100_000, metavar="RATE", help="Sends a second in e2e.")
    ] = 200,
    create: Annotated[bool, typer.Option("--create", help="Create the topic if it does not exist.")] = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "-c", "--clusterName", metavar="CLUSTER", help="With --create, the cluster; needed if there are several."
        ),
    ] = None,
    queues: Annotated[
        int,
        typer.Option("-q", "--queues", min=1, max=1024, metavar="COUNT", help="With --create, queues of each broker."),
    ] = 8,
    clean: Annotated[
        bool, typer.Option("--clean", help="Delete the topic at the end if --create has created it.")
    ] = False,
) -> Report:
    """Measure rates and latencies of sends and deliveries."""
    chosen = loads_of(loads)
    if batch * size > MAX_MESSAGE_SIZE and Load.BATCH in chosen:
        raise typer.BadParameter(
            f"a batch of {batch} bodies of {size:,} bytes exceeds the limit of {MAX_MESSAGE_SIZE:,} bytes; "
            f"use -b {MAX_MESSAGE_SIZE // size} or less, or a smaller -s"
        )
    if not create and (cluster or clean):
        raise typer.BadParameter("-c and --clean concern a topic that --create creates; add --create or leave them out")
    try:
        check_topic(topic)
    except ClientError as error:
        raise typer.BadParameter(str(error)) from error
    settings = LoadSettings(topic, tasks, in_flight, size, batch, rate, messages, duration)
    created = await _place_of_new(admin, topic, cluster) if create else None
    if not create:
        await _check_exists(admin, topic)
    try:
        if created is not None:
            await _create_topic(admin, topic, created, queues)
        outcomes, stopped = await _run_loads(admin, settings, chosen)
    finally:
        if created is not None and clean:
            for left in await _delete_topic(admin, topic, created):
                print_error(left)
    return report_of(
        settings, outcomes, created=created is not None, removed=created is not None and clean, stopped=stopped
    )


def loads_of(text: str) -> list[Load]:
    """Return the named loads in the order in which they run.

    Raises:
        typer.BadParameter: an unknown name, or none.
    """
    names = [name.strip().lower() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in set(Load)]
    if unknown or not names:
        raise typer.BadParameter(
            f"{', '.join(unknown) or 'nothing'} is no load; give some of {', '.join(Load)}, joined by commas"
        )
    return [load for load in Load if load in names]


async def _check_exists(admin: AdminClient, topic: str) -> None:
    """Check that a topic exists: a producer would let the broker create it.

    Raises:
        ClientError: it does not.
    """
    try:
        await admin.examine_topic_route_info(topic)
    except TopicRouteError as error:
        raise ClientError(
            f"there is no topic {topic!r}, and nothing was sent; create it by --create (--clean deletes it again)"
        ) from error


class CreatedTopic(NamedTuple):
    """Places of a topic to create: the cluster, and the addresses of its masters by name."""

    cluster: str
    masters: Mapping[str, str]


async def _place_of_new(admin: AdminClient, topic: str, cluster: str | None) -> CreatedTopic | None:
    """Return where to create a topic, None if it exists.

    Raises:
        ClientError: the cluster is unknown, or not given and there are several.
    """
    with suppress(TopicRouteError):
        await admin.examine_topic_route_info(topic)
        return None
    if cluster is None:
        known = sorted((await admin.examine_broker_cluster_info()).cluster_addr_table)
        if len(known) != 1:
            raise ClientError(f"there are the clusters {', '.join(known) or '(none)'}; choose one by -c")
        cluster = known[0]
    return CreatedTopic(cluster, await admin.fetch_master_addresses(cluster))


async def _create_topic(admin: AdminClient, topic: str, place: CreatedTopic, queues: int) -> None:
    """Create a topic, and wait until the name server knows it on all masters.

    Raises:
        ClientError: the name server does not list it in time.
    """
    for address in place.masters.values():
        await admin.create_and_update_topic_config(address, TopicConfig(topic, queues, queues))
    try:
        async with asyncio.timeout(_REGISTERED_LIMIT_S):
            while not await _is_registered(admin, topic, set(place.masters)):  # noqa: ASYNC110 - the name server tells nobody
                await asyncio.sleep(_LOOK_S)
    except TimeoutError as error:
        raise ClientError(
            f"topic {topic!r} was created, but the name server does not list it on all masters after "
            f"{_REGISTERED_LIMIT_S:g} s; look at mqadmin topicRoute -t {topic}"
        ) from error


async def _delete_topic(admin: AdminClient, topic: str, place: CreatedTopic) -> list[str]:
    """Delete a topic, also where it was created on some masters only; return a line for each server that keeps it."""
    _, failed = await ask_each(place.masters.values(), lambda address: admin.delete_topic_in_broker([address], topic))
    left = [f"{address} keeps topic {topic}: {with_hint(error)}" for address, error in failed.items()]
    try:
        await admin.delete_topic_in_name_server(topic, place.cluster)
    except RocketBrokerError as error:
        left.append(f"the name servers keep topic {topic}: {with_hint(error)}")
    return left


async def _is_registered(admin: AdminClient, topic: str, brokers: set[str]) -> bool:
    try:
        route = await admin.examine_topic_route_info(topic)
    except TopicRouteError:
        return False
    return brokers <= {queues.broker_name for queues in route.queue_datas}


async def _run_loads(admin: AdminClient, settings: LoadSettings, chosen: Sequence[Load]) -> tuple[list[Outcome], bool]:
    """Run the loads; return the outcomes, and true if Ctrl-C ended them early."""
    stop, outcomes = asyncio.Event(), []
    async with ClientInstance(admin.config) as client:
        producer = Producer(_GROUP, client=client, compress_msg_body_over_howmuch=_NO_COMPRESSION)
        async with producer, _interruptible(stop):
            loads = Loads(client, producer, settings, stop)
            starts = await loads.offsets(ends=bool(SENDING & set(chosen)))
            for load in chosen:
                if stop.is_set():
                    break
                outcomes.append(await loads.run(load, starts))
    return outcomes, stop.is_set()


@asynccontextmanager
async def _interruptible(stop: asyncio.Event) -> AsyncIterator[None]:
    """Let the first Ctrl-C set an event; the next one interrupts the process as usual."""
    loop = asyncio.get_running_loop()

    def interrupt() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


def report_of(
    settings: LoadSettings, outcomes: Sequence[Outcome], *, created: bool, removed: bool, stopped: bool
) -> Report:
    """Return the table of all loads; failures name the loads with errors."""
    data = {
        "topic": settings.topic,
        "size": settings.size,
        "created": created,
        "removed": removed,
        "interrupted": stopped,
        "loads": outcomes,
    }
    return Report(
        data, [_table(outcomes), "", *_remarks(settings, outcomes, removed=removed)], _failures(outcomes, stopped)
    )


def _table(outcomes: Sequence[Outcome]) -> Table:
    numbers = ("#Messages", "#Failed", "#Msg/s", "#MiB/s", "#p50(ms)", "#p95", "#p99", "#p99.9", "#Max", "#Client CPU")
    rows = [
        [
            each.load.value,
            f"{each.messages}",
            f"{each.failed}",
            f"{each.rate:.0f}",
            f"{each.mib_per_second:.2f}",
            *(f"{each.latency_ms[name]:.2f}" if each.latency_ms else "-" for name in FIGURES),
            f"{each.client_busy:.0%}",
        ]
        for each in outcomes
    ]
    return Table([Column("#Load"), *(Column(title, True) for title in numbers)], rows)


def _remarks(settings: LoadSettings, outcomes: Sequence[Outcome], *, removed: bool) -> list[str]:
    sent = sum(each.messages for each in outcomes if each.load in SENDING)
    remarks = [
        f"{settings.size} bytes a message; latencies are of requests, in {Load.E2E} from the send to the delivery."
    ]
    if busy := [each.load for each in outcomes if each.client_busy > _BUSY]:
        remarks.append(
            f"{', '.join(busy)}: this process used a whole CPU, so the servers may do more; run several at a time."
        )
    if any(each.load is Load.CONSUME and not each.messages and not each.error for each in outcomes):
        remarks.append(f"topic {settings.topic} has no messages to consume.")
    if removed:
        remarks.append(f"topic {settings.topic} was deleted, with its messages.")
    elif sent:
        remarks.append(f"{sent} messages stay in topic {settings.topic} until they expire.")
    return remarks


def _failures(outcomes: Sequence[Outcome], stopped: bool) -> list[str]:
    lines = [
        f"{each.load}: {each.failed} of {each.messages + each.failed} messages failed; first error: {each.error}"
        for each in outcomes
        if each.failed or each.error
    ]
    return lines + ["stopped by Ctrl-C; the figures are those until then"] * stopped
