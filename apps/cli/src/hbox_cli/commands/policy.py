"""`hbox policy`: HBox's own policies as files, and what is wrong with a file."""

from pathlib import Path

import click

from hbox_common.errors import InvalidRequest
from hbox_common.yamltext import read_file

from ..context import Context, command_options
from ..exits import Exit
from ..output import Column, put

NAMES = ("least-waste", "binpack", "fgd")
MODES = ("off", "preview", "on")


@click.group("policy")
def command() -> None:
    """Print HBox's own policies as a volcano-scheduler.conf, or check a policy file."""


@command.command("show")
@click.argument("name", default=NAMES[0], type=click.Choice(NAMES))
@click.option(
    "--defragmentation", type=click.Choice(MODES), default=MODES[0], show_default=True, help="Value of HBOX_DEFRAGMENTATION."
)
@command_options
def show(ctx: Context, name: str, defragmentation: str) -> None:
    """Print the policy that scheduler-core uses without a file, as a volcano-scheduler.conf: least-waste, or the value of HBOX_POLICY.

    \b
    hbox policy show > volcano-scheduler.conf
    hbox policy show binpack
    hbox policy show --defragmentation preview
    """
    from hbox_common.model.consolidation import Mode  # noqa: PLC0415  half a second that --help does not need
    from hbox_scheduler.core.policy.default import PolicyName, default_text  # noqa: PLC0415

    text = default_text(PolicyName(name), Mode(defragmentation))
    if not ctx.output.people:
        ctx.output.document("Policy", {"name": name, "volcano-scheduler.conf": text})
    else:
        put(*text.splitlines())


@command.command("check")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@command_options
def check(ctx: Context, path: Path) -> None:
    """Check that PATH is a valid volcano-scheduler.conf for HBOX_SCHEDULER_CONF: actions, plugins, flags and arguments; and list what prevents
    placing identical pods in batches.

    \b
    hbox policy check volcano-scheduler.conf
    """
    from hbox_scheduler.core.framework.conf import parse_conf  # noqa: PLC0415
    from hbox_scheduler.core.placement.policycheck import policy_warnings  # noqa: PLC0415
    from hbox_scheduler.core.policy.inputs import check_inputs  # noqa: PLC0415
    from hbox_scheduler.core.policy.registry import PLUGINS  # noqa: PLC0415
    from hbox_scheduler.core.policy.uniform import in_the_way  # noqa: PLC0415

    try:
        conf = parse_conf(read_file(path).decode(), plugins=tuple(PLUGINS))
        conf.refuse_ignored()
        check_inputs(conf)
        reasons, warnings = in_the_way(conf), policy_warnings(conf)
    except UnicodeError as e:
        raise InvalidRequest(f"{path}: it is not UTF-8", hint="name a volcano-scheduler.conf") from e
    except InvalidRequest as e:
        raise InvalidRequest(f"{path}: {e.message}", hint=e.hint) from e
    plugins = [plugin.name for plugin in conf.plugins]
    if ctx.output.machine:
        content = {
            "path": str(path),
            "actions": list(conf.actions),
            "plugins": plugins,
            "warnings": warnings,
            "inTheWayOfBatches": reasons,
        }
        ctx.output.document("PolicyCheck", content)
        return
    if not ctx.output.people:
        ctx.output.rows("Plugin", [{"name": name} for name in plugins], [Column("PLUGIN", lambda row: row["name"])])
        return
    put(f"{path} is right: actions {', '.join(conf.actions)}; plugins {', '.join(plugins) or 'none'}")
    put(*(f"warning: {warning}" for warning in warnings))
    put(*(f"in the way of batches: {reason}" for reason in reasons))


@command.command("diff")
@click.argument("before")
@click.argument("after")
@command_options
def diff(ctx: Context, before: str, after: str) -> int:
    """Show how the policy AFTER differs from BEFORE: actions, plugins in their order, flags and arguments. Each is a file, or the name of a policy of HBox
    (least-waste, binpack, fgd). Exit status 1 if they differ, as `diff`.

    \b
    hbox policy diff least-waste volcano-scheduler.conf
    hbox policy diff old.conf new.conf -o json
    """
    from ..simulate.policydiff import conf_of, differences  # noqa: PLC0415  half a second that --help does not need

    found = differences(conf_of(before), conf_of(after))
    if ctx.output.people:
        put(*(f"{one['name']}: {one['before'] or 'none'} -> {one['after'] or 'none'}" for one in found))
        if not found:
            put("no difference")
    else:
        columns = (
            Column("WHAT", lambda r: r["name"]),
            Column("BEFORE", lambda r: r["before"]),
            Column("AFTER", lambda r: r["after"]),
        )
        ctx.output.rows("PolicyDifference", found, columns)
    return int(Exit.FAILED if found else Exit.OK)
