"""Sub-commands about the policies of access control (org.apache.rocketmq.tools.command.auth).

Resources, actions and addresses are checked before they are sent: Apache's broker skips an action that it does not
know, and deletes all policies of a subject if the resource to delete is invalid.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec
import typer

from rocketbroker.app.mqadmin.command import Report, chosen_masters, java_text, sub_command, with_hint
from rocketbroker.app.mqadmin.users import (
    FromBroker,
    OfBroker,
    OfCluster,
    OnBroker,
    OnCluster,
    ToBroker,
    brokers_to_change,
    changed,
    names_in,
)
from rocketbroker.app.terminal import Column, Table
from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.client.core.errors import ClientError
from rocketbroker.codec.remoting.bodies.auth import AclInfo, PolicyEntryInfo, PolicyInfo
from rocketbroker.common.errors import BrokerResponseError, RocketBrokerError

_TITLES: Final = ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision")
_COLUMNS: Final = [Column(title) for title in _TITLES]


class Decision(StrEnum):
    """Outcome of an entry."""

    ALLOW = "Allow"
    DENY = "Deny"


Subject = Annotated[str, typer.Option("-s", "--subject", metavar="User:NAME", help="Subject: User: and a name.")]
Resources = Annotated[
    str,
    typer.Option(
        "-r",
        "--resources",
        metavar="RESOURCE,...",
        help="Resources such as Topic:orders, Group:shop* or Cluster:*, joined by commas.",
    ),
]
Actions = Annotated[
    str,
    typer.Option(
        "-a",
        "--actions",
        metavar="ACTION,...",
        help="Some of Pub, Sub, Create, Update, Delete, Get and List, or All.",
    ),
]
DecisionOption = Annotated[
    Decision, typer.Option("-d", "--decision", case_sensitive=False, help="Outcome for such requests.")
]
SourceIps = Annotated[
    str | None,
    typer.Option("-i", "--sourceIp", metavar="ADDRESS,...", help="Requests from these addresses or networks only."),
]


def subject_in(text: str) -> str:
    """Return a subject.

    Raises:
        typer.BadParameter: it is not ``User:`` and a name.
    """
    kind, _, name = text.partition(":")
    if kind.lower() != "user" or not name.strip():
        raise typer.BadParameter(f"-s {text!r} is no subject; give User: and the name of a user, such as User:joe")
    return text


def acl_of(subject: str, resources: str, actions: str, decision: Decision, source_ips: str | None) -> AclInfo:
    """Return the policies that options describe: an entry for each resource.

    Raises:
        typer.BadParameter: no broker knows a value.
    """
    from rocketbroker.auth.errors import AuthValueError
    from rocketbroker.auth.policies import parse_entry, parse_subject

    sources = names_in(source_ips, "-i") if source_ips is not None else None
    words = names_in(actions, "-a")
    entries = [PolicyEntryInfo(each, words, sources, decision.value) for each in names_in(resources, "-r")]
    try:
        parse_subject(subject)
        for entry in entries:
            parse_entry(entry, "-r, -a, -i")
    except AuthValueError as error:
        raise typer.BadParameter(str(error)) from None
    return AclInfo(subject, [PolicyInfo(None, entries)])


def resource_in(text: str) -> str:
    """Return a resource as it is sent.

    Raises:
        typer.BadParameter: no broker knows it.
    """
    from rocketbroker.auth.errors import AuthValueError
    from rocketbroker.auth.policies import parse_resource

    try:
        parse_resource(text, "-r")
    except AuthValueError as error:
        raise typer.BadParameter(str(error)) from None
    return text


# -- changes


@sub_command("createAcl", dry_run=True)
async def create_acl(
    admin: AdminClient,
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: DecisionOption,
    source_ip: SourceIps = None,
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Allow or deny a user actions on resources."""
    acl = acl_of(subject, resources, actions, decision, source_ip)
    addresses = await brokers_to_change(admin, broker_addr, cluster_name)
    return await changed(
        "create acl to {} success.", addresses, lambda address: admin.create_acl(address, acl), _data(acl)
    )


@sub_command("updateAcl", dry_run=True)
async def update_acl(
    admin: AdminClient,
    subject: Subject,
    resources: Resources,
    actions: Actions,
    decision: DecisionOption,
    source_ip: SourceIps = None,
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Replace what a user may do with resources."""
    acl = acl_of(subject, resources, actions, decision, source_ip)
    addresses = await brokers_to_change(admin, broker_addr, cluster_name)
    return await changed(
        "update acl to {} success.", addresses, lambda address: admin.update_acl(address, acl), _data(acl)
    )


def _data(acl: AclInfo) -> dict[str, object]:
    return {"subject": acl.subject, "policies": acl.policies}


def delete_question(subject: str, resources: str | None, **_others: object) -> str:
    """Return the question that is asked before policies are deleted."""
    return f"Delete {f'the policies for {resources}' if resources is not None else 'all policies'} of {subject}?"


@sub_command("deleteAcl", deletes=delete_question, dry_run=True)
async def delete_acl(
    admin: AdminClient,
    subject: Subject,
    resources: Annotated[
        str | None,
        typer.Option("-r", "--resources", metavar="RESOURCE,...", help="For these resources only, joined by commas."),
    ] = None,
    broker_addr: OnBroker = None,
    cluster_name: OnCluster = None,
) -> Report:
    """Delete the policies of a user, for some resources or all."""
    subject_in(subject)
    wanted = [resource_in(each) for each in names_in(resources, "-r")] if resources is not None else [None]
    addresses = await brokers_to_change(admin, broker_addr, cluster_name)

    async def delete(address: str) -> None:
        for resource in wanted:
            await admin.delete_acl(address, subject, resource)

    data = {"subject": subject, "resources": wanted if resources is not None else None}
    return await changed("delete acl to {} success.", addresses, delete, data)


# -- reads


class AclsOfBroker(msgspec.Struct, rename="camel"):
    """The policies of subjects on a broker, or the error that kept it from answering."""

    addr: str
    acls: list[AclInfo]
    error: str | None = None


@sub_command("getAcl", reads=True)
async def get_acl(
    admin: AdminClient, subject: Subject, broker_addr: OfBroker = None, cluster_name: OfCluster = None
) -> Report:
    """Show the policies of a user."""
    subject_in(subject)
    rows = []
    for address in await chosen_masters(admin, broker_addr, cluster_name):
        try:
            acl = await admin.get_acl(address, subject)
        except RocketBrokerError as error:
            rows.append(AclsOfBroker(address, [], with_hint(error)))
        else:
            missing = None if acl else f"{subject} has no policies; listAcl shows all"
            rows.append(AclsOfBroker(address, [acl] if acl else [], missing))
    return _acls_report(rows)


@sub_command("listAcl", reads=True)
async def list_acl(
    admin: AdminClient,
    subject: Annotated[
        str | None, typer.Option("-s", "--subject", metavar="TEXT", help="Part of the subjects to list.")
    ] = None,
    resource: Annotated[
        str | None, typer.Option("-r", "--resource", metavar="TEXT", help="Part of the resources to list.")
    ] = None,
    broker_addr: OfBroker = None,
    cluster_name: OfCluster = None,
) -> Report:
    """List the policies of users."""
    rows = []
    for address in await chosen_masters(admin, broker_addr, cluster_name):
        try:
            rows.append(AclsOfBroker(address, await admin.list_acl(address, subject, resource)))
        except RocketBrokerError as error:
            rows.append(AclsOfBroker(address, [], with_hint(error)))
    return _acls_report(rows)


def _acls_report(rows: Sequence[AclsOfBroker]) -> Report:
    parts: list[str | Table] = []
    for row in rows:
        if len(rows) > 1:
            parts.append(f"# {row.addr}")
        cells = [line for acl in sorted(row.acls, key=lambda each: each.subject or "") for line in _lines(acl)]
        if cells:
            parts.append(Table(_COLUMNS, cells))
    return Report({"brokers": rows}, parts, [f"{row.addr}: {row.error}" for row in rows if row.error])


def _lines(acl: AclInfo) -> list[list[str]]:
    """Return the cells of the entries of a subject, as Apache's tool prints lists; a subject without any has a line."""
    subject = acl.subject or ""
    if not acl.policies:
        return [[subject, "", "", "", "", ""]]
    return [
        [
            subject,
            policy.policy_type or "-",
            entry.resource or "-",
            java_text(entry.actions),
            java_text(entry.source_ips),
            entry.decision or "-",
        ]
        for policy in acl.policies
        for entry in policy.entries or []
    ]


# -- copies


@sub_command("copyAcl", dry_run=True)
async def copy_acl(
    admin: AdminClient,
    from_broker: FromBroker,
    to_broker: ToBroker,
    subjects: Annotated[
        str | None, typer.Option("-s", "--subjects", metavar="User:NAME,...", help="Policies of these users only.")
    ] = None,
) -> Report:
    """Copy policies from a broker to another that has the users."""
    if subjects is None:
        wanted = [acl.subject or "" for acl in await admin.list_acl(from_broker)]
    else:
        wanted = [subject_in(each) for each in names_in(subjects, "-s")]
    copied, lines, failures = [], [], []
    for subject in wanted:
        try:
            acl = await admin.get_acl(from_broker, subject)
            if acl is None:
                raise ClientError(f"it has no policies on {from_broker}")
            await _put(admin, to_broker, subject, acl)
        except RocketBrokerError as error:
            failures.append(f"{subject}: {with_hint(error)}")
        else:
            copied.append(subject)
            lines.append(f"copy acl of {subject} from {from_broker} to {to_broker} success.")
    return Report({"fromBroker": from_broker, "toBroker": to_broker, "subjects": copied}, lines, failures)


async def _put(admin: AdminClient, address: str, subject: str, acl: AclInfo) -> None:
    """Create the policies of a subject on a broker, or add to those that it has there."""
    try:
        if await admin.get_acl(address, subject) is None:
            await admin.create_acl(address, acl)
        else:
            await admin.update_acl(address, acl)
    except BrokerResponseError as error:
        error.add_note(f"answered by {address}; copy the user first, if it does not exist there, by copyUser")
        raise
