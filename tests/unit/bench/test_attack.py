"""Connections that fail: what each sends, that none stays, and what is counted."""

import asyncio
import ssl
from pathlib import Path

import pytest

from bench import attack
from bench.attack import Attacker, attacked, payloads
from tests.support.tls_files import TlsFiles
from tests.support.waiting import until


def test_a_whole_hello_costs_the_server_its_flight_and_a_half_one_nothing(tmp_path: Path):
    TlsFiles(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    sent = []
    for hello in payloads()[2:]:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        incoming.write(hello)
        with pytest.raises(ssl.SSLWantReadError):
            context.wrap_bio(incoming, outgoing, server_side=True).do_handshake()
        sent.append(len(outgoing.read()))
    whole, half = sent
    assert whole > (tmp_path / "server.pem").stat().st_size // 2
    assert half == 0


async def test_connections_of_each_kind_take_turns_and_are_reset(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(attack, "_HOLD_S", 0.2)
    received: list[bytes] = []
    sources: set[str] = set()
    resets = 0
    *_, half_hello = kinds = payloads()
    monkeypatch.setattr(attack, "payloads", lambda: kinds)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal resets
        data = await reader.read(65_536)
        received.append(data)
        sources.add(writer.get_extra_info("peername")[0])
        if b"AccessKey" in data:
            writer.close()
        elif data == half_hello:
            try:
                await reader.read()
            except ConnectionResetError:
                resets += 1
            writer.close()
        else:
            writer.write(b"answer")
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        attacker = Attacker(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", rate=300)
        running = asyncio.create_task(asyncio.to_thread(attacker.run))
        figures = attacker.figures
        await until(lambda: min(resets, figures.answered // 2, figures.closed) >= 5)
        attacker.is_stopped = True
        await running
    assert figures.begun >= len(received) >= 20
    assert sources == {"127.0.0.2"}
    assert figures.refused == 0
    # One that a slow server reads after its end is empty.
    assert set(received) - {b""} == set(kinds)
    assert "connections a second" in figures.line()


def test_the_figures_of_an_attack_are_printed(capsys: pytest.CaptureFixture[str]):
    with attacked("127.0.0.1:9"):
        pass
    assert "attack: " in capsys.readouterr().out
