"""`hbox audit`."""

from pathlib import Path

import click

from ..access import running_of
from ..aio import run
from ..audit import Audit
from ..audit.reading import audit_platform
from ..context import Context, platform_options
from ..exits import Faulty
from ..output import notify, put
from ..platform.layout import Layout
from ..session import bus_of

MIB = 2**20

_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command("audit")
@click.option(
    "--patience", type=click.FloatRange(0), default=15.0, show_default=True, help="Seconds to wait until pending claims settle."
)
@click.option("--ledger", is_flag=True, help="Verify the ledger's database instead: hash chain of the audit trail, balances.")
@click.option("--database", metavar="URL", help="With --ledger: the database URL [the state folder's].")
@click.option(
    "--head", metavar="NUMBER:HASH", help="With --ledger: chain head printed by an earlier run, which the chain has to contain."
)
@click.option(
    "--segments", type=_FOLDER, metavar="FOLDER", help="With --ledger: exported segments that are not in the database any more."
)
@click.option(
    "--export", type=_FOLDER, metavar="FOLDER", help="With --ledger: write sealed segments to files, if there is no fault."
)
@click.option("--remove", is_flag=True, help="With --export: then delete the contents of these segments from the database.")
@platform_options
def command(  # noqa: PLR0917  options
    ctx: Context,
    patience: float,
    ledger: bool,
    database: str | None,
    head: str | None,
    segments: Path | None,
    export: Path | None,
    remove: bool,
) -> None:
    """Prove from outside that the platform keeps its promises.

    The audit reads all pods, nodes and PodGroups from the API and all claims from the ledger, and checks: no card is over-booked, no gang is
    partial, ledger and cluster agree. Exit status 1 if a check fails. It ignores annotations that tenants changed on their pods, and lists them.

    With --ledger the audit replays the ledger's database, also while no service runs: it names the first audit record that was changed, removed or
    inserted, and checks claims, balances and cards against their history. Keep the printed head: a later run with --head proves that no record
    before it was rewritten. It follows sealed segments, and names one that is missing, altered or in another's place. --export keeps their files elsewhere.
    """
    if not ledger and (database or head or segments or export):
        raise click.UsageError("--database, --head, --segments and --export go with --ledger")
    if remove and not export:
        raise click.UsageError("--remove requires --export")
    if ledger:
        _ledger(ctx, database, head, segments or export)
        if export is not None:
            _export(ctx, database, export, remove)
        return
    result = run(lambda: _audit(ctx, patience))
    if not ctx.output.people:
        ctx.output.document("Audit", {"checks": result.checks, "faults": result.faults, "notes": result.notes})
    else:
        for fault in result.faults:
            put(f"fault: {fault}")
        for note in result.notes:
            put(f"note: {note}")
        print(f"audit: {result.checks} checks, {len(result.faults)} faults")
    if result.faults:
        notify("")
        raise Faulty(
            f"the audit found {len(result.faults)} faults", hint="they are listed above; the logs folder has the services' side"
        )


async def _audit(ctx: Context, patience_s: float) -> Audit:
    from hbox_common.kube import KubeClient  # noqa: PLC0415  half a second that --help does not need

    running = running_of(ctx)
    async with (
        bus_of(running) as bus,
        KubeClient.connect(running.kubeconfig or None, user_agent="hbox-audit", timeout_s=30) as client,
    ):
        result, _ = await audit_platform(client, bus, patience_s=patience_s, schedulers=running.scheduler_names)
    return result


def _export(ctx: Context, database: str | None, folder: Path, remove: bool) -> None:
    from hbox_ledger.adapters.export import export  # noqa: PLC0415

    done = export(database or Layout(ctx.state).database_url(), folder, removes=remove)
    if ctx.output.people:
        removed = f", {done.removed} removed from the database" if remove else ""
        print(f"{folder}: {done.files} segments, {done.size / MIB:.1f} MiB, {done.written} of them new{removed}")


def _ledger(ctx: Context, database: str | None, head: str | None, folder: Path | None) -> None:
    from hbox_ledger.adapters.audit import prove  # noqa: PLC0415  SQLAlchemy, for those who ask for it
    from hbox_ledger.core.chain import Mark  # noqa: PLC0415

    proof = prove(database or Layout(ctx.state).database_url(), through=Mark.parse(head) if head else None, folder=folder)
    if not ctx.output.people:
        content = {
            "records": proof.records,
            "segments": proof.segments,
            "head": proof.head and str(proof.head),
            "checks": proof.checks,
            "faults": proof.faults,
            "notes": proof.notes,
        }
        ctx.output.document("LedgerAudit", content)
    else:
        for fault in proof.faults:
            put(f"fault: {fault}")
        for note in proof.notes:
            put(f"note: {note}")
        print(f"ledger: {proof.records} records, {proof.segments} segments, {proof.checks} checks, {len(proof.faults)} faults")
        if proof.head is not None and not proof.faults:
            print(f"head: {proof.head}")
    if proof.faults:
        raise Faulty(
            f"the ledger's database has {len(proof.faults)} faults",
            hint="stop the ledger, and keep a copy of the database before anything else",
        )
