"""Checks of TLS: certificates of the servers, and connections in plain text to ports that serve both."""

from collections.abc import Iterator
from shlex import quote
from typing import Final

from rocketbroker.app.mqadmin.checks.cluster_facts import CertificateFacts, ClusterFacts
from rocketbroker.app.mqadmin.checks.finding import Finding, Severity
from rocketbroker.app.mqadmin.named_clusters import CHOSEN
from rocketbroker.app.mqadmin.remedies import counted

_NEAR_DAYS: Final = 30


def certificates(facts: ClusterFacts) -> Iterator[Finding]:
    """Find certificates that expire, that name another host, or that this machine cannot verify."""
    for seen in facts.certificates:
        file = quote(seen.path) if seen.path else "the file of tls.server.certPath"
        if seen.days_left is not None and seen.days_left < _NEAR_DAYS:
            is_past = seen.days_left <= 0
            days = abs(seen.days_left)
            when = f"expired {days:.1f} days ago" if is_past else f"expires in {days:.1f} days"
            yield Finding(
                "certificate",
                Severity.ERROR if is_past else Severity.WARNING,
                seen.subject,
                f"its certificate {when}",
                f"replace {file} and its key, which are read again within 10 s; then see: {_show(seen, '-enddate')}",
            )
        if seen.names is not None and not seen.fits:
            names = ", ".join(seen.names) or "no host at all"
            yield Finding(
                "certificate",
                Severity.ERROR,
                seen.subject,
                f"its certificate is for {names}, and clients connect to {seen.host}",
                f"give it one with subjectAltName={_alt_name(seen.host)} in {file}, or let it advertise a name of the "
                f"certificate (brokerIP1); see: {_show(seen, '-ext subjectAltName')}",
            )
        if seen.refusal:
            given = CHOSEN.get().ca_file
            trusted = f"-CAfile {quote(str(given))} " if given is not None else ""
            yield Finding(
                "certificate",
                Severity.ERROR,
                seen.subject,
                f"its certificate is not verified by the issuers that are trusted here: {seen.refusal}",
                "give clients the certificate of its issuer (--ca-file, tls.client.trustCertPath), and append those "
                f"between to {file}; see: openssl s_client -connect {quote(seen.address)} {trusted}-showcerts "
                "</dev/null",
            )


def _show(seen: CertificateFacts, what: str) -> str:
    return f"openssl s_client -connect {quote(seen.address)} </dev/null | openssl x509 -noout {what}"


def _alt_name(host: str) -> str:
    is_address = ":" in host or host.replace(".", "").isdigit()
    return f"{'IP' if is_address else 'DNS'}:{host}"


def plain_text(facts: ClusterFacts) -> Iterator[Finding]:
    """Find brokers whose clients use plain text though they serve TLS; only this project's brokers report them."""
    for broker in facts.brokers:
        number, last = broker.runtime.get("plainTextConnections", ""), broker.runtime.get("lastPlainTextPeer", "")
        if not number.isdigit():
            continue
        yield Finding(
            "plainText",
            Severity.WARNING,
            f"broker {broker.label}",
            f"serves TLS and plain text, and {counted(int(number), 'connection')} from other machines since its start "
            f"used plain text, the last from {last}",
            "let that client use TLS; once all do, set tls.server.mode=enforcing and restart the broker",
        )
