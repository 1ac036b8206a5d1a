"""Arguments of a policy for which the running service has no input: rejected when the policy is read, not ignored."""

from hbox_common.errors import InvalidRequest

from ..framework.conf import Conf

_WITHOUT_INPUT = {
    (
        "predicates",
        "predicate.NodeVolumeLimitsEnable",
    ): "volumes that are attached to nodes are not counted, nor held to CSINode limits",
}


def check_inputs(conf: Conf) -> None:
    """Raises InvalidRequest for an argument that is written, is not off, and could have no effect in the running service. What is left out is off there."""
    for plugin in conf.plugins:
        for key, value in plugin.arguments.items():
            if (reason := _WITHOUT_INPUT.get((plugin.name, key))) is not None and str(value).strip().lower() not in (
                "0",
                "0.0",
                "false",
            ):
                where = f"line {plugin.line}: " if plugin.line else ""
                off = "false" if key.endswith("Enable") else "0"
                raise InvalidRequest(
                    f"{where}plugin {plugin.name}, argument {key}: {value} has no effect: {reason}",
                    hint=f"write {off}, or leave it out",
                )
