"""`hbox health inject` writes into the folders of emulated nodes, and never acts on a real cluster."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from hbox_cli.commands.health import command
from hbox_cli.platform.layout import Layout, Running
from hbox_common.errors import HBoxError
from hbox_sandbox.kubelet.hardware import KERNEL_LOG, NodeHardware

EMULATED = Running(1, "nats://127.0.0.1:1", "/k", "", True, "fgd")


def inject(state: Path, running: Running, *words: str) -> Result:
    layout = Layout(state)
    for node in ("n1", "n2"):
        root = layout.kubelets / node
        root.mkdir(parents=True)
        NodeHardware(root).cards({f"GPU-{node}": "0000:18:00.0"})
    with layout.locked():
        layout.write_running(running)
        return CliRunner().invoke(command, ["inject", *words, "--state", str(state)])


def test_a_fault_is_injected_into_each_named_node(tmp_path: Path) -> None:
    result = inject(tmp_path, EMULATED, "xid-79", "n1", "n2")
    assert (result.exit_code, result.output.splitlines()) == (0, ["n1: xid-79", "n2: xid-79"])
    for node in ("n1", "n2"):
        assert "79, " in (tmp_path / "kubelets" / node / KERNEL_LOG).read_text()


@pytest.mark.parametrize(
    ("running", "node", "why"),
    [(replace(EMULATED, emulated=False), "n1", "emulated nodes only"), (EMULATED, "n9", "no emulated kubelet")],
)
def test_a_node_of_a_real_cluster_and_an_unknown_node_are_refused(
    tmp_path: Path, running: Running, node: str, why: str
) -> None:
    result = inject(tmp_path, running, "xid-79", node)
    assert isinstance(result.exception, HBoxError)
    assert why in result.exception.message
    assert not (tmp_path / "kubelets/n1" / KERNEL_LOG).exists()
