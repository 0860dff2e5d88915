"""Certificates as servers show them, for ``mqadmin doctor``: two handshakes with each server that has TLS."""

import asyncio
import ssl

from rocketbroker.app.mqadmin.checks.cluster_facts import CertificateFacts, ClusterFacts
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.common.clock import Clock, SystemClock
from rocketbroker.common.config.fields import DAY_MS

_TIMEOUT_S = 5.0
_CERT_PATH, _MODE = "tls.server.certPath", "tls.server.mode"
# Codes of OpenSSL for what is found by the certificate itself: expired, and another name or address.
_FOUND_OTHERWISE = frozenset({10, 62, 64})


async def look_at_certificates(admin: AdminClient, facts: ClusterFacts) -> None:
    """Add the certificates of all servers if this command uses TLS, otherwise of the brokers that name one.

    Args:
        admin: its TLS verifies them.
        facts: of the cluster; gets the certificates, and a line for each that could not be seen.
    """
    tls = admin.config.tls
    trusted = ssl.create_default_context() if tls is True else tls or None
    servers = [
        (f"broker {each.label}", each.address, each.settings.get(_CERT_PATH, ""))
        for each in facts.brokers
        if trusted is not None or (each.settings.get(_CERT_PATH) and each.settings.get(_MODE) != "disabled")
    ]
    if trusted is not None:
        servers = [(f"name server {each.address}", each.address, "") for each in facts.name_servers] + servers
    for subject, address, path in servers:
        try:
            facts.certificates.append(await probe(subject, address, path, trusted))
        except ModuleNotFoundError:
            facts.unknown.append("certificates: pip install 'rocketbroker[security]' to look at them")
            return
        except OSError as error:  # an SSLError, and a timeout
            facts.unknown.append(f"{subject}, certificate: {str(error) or 'no answer'}")


async def probe(
    subject: str, address: str, path: str, trusted: ssl.SSLContext | None, clock: Clock | None = None
) -> CertificateFacts:
    """Return what the certificate of a server says, and if it is verified.

    Args:
        subject: the server in words.
        address: its ``host:port``.
        path: file of its certificate, as far as it is known.
        trusted: settings of this machine's connections; ``None`` for plain text, so that nothing is verified.
        clock: source of the time.

    Raises:
        OSError: There is no connection, or no TLS.
        ModuleNotFoundError: The extra ``security`` is not installed.
    """
    from rocketbroker.common.certificates import described, fits

    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    facts = CertificateFacts(subject, address, host, path)
    data = b""
    if trusted is not None:
        try:
            data = await _shown(host, int(port), trusted)
        except ssl.SSLCertVerificationError as error:
            if error.verify_code not in _FOUND_OTHERWISE:
                facts.refusal = error.verify_message
    if not data:
        data = await _shown(host, int(port), _any())
    expires_ms, facts.names = described(data)
    facts.days_left = (expires_ms - (clock or SystemClock()).time_ms()) / DAY_MS
    facts.fits = fits(facts.names, host)
    return facts


def _any() -> ssl.SSLContext:
    """Return settings that accept every certificate: it is looked at, and nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _shown(host: str, port: int, context: ssl.SSLContext) -> bytes:
    """Return the certificate of a server after a handshake."""
    async with asyncio.timeout(_TIMEOUT_S):
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        return found
    finally:
        writer.transport.abort()
