"""`hbox up --ports-from`: an order of ports that does not depend on what else runs, and a taken port is named with its use."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from hbox_cli.commands.up import command
from hbox_cli.platform import portplan
from hbox_cli.platform.supervisor import Plan
from hbox_cli.services import SERVICES
from hbox_common.errors import Conflict, InvalidRequest
from hbox_common.ports import free_port, held


@pytest.mark.parametrize("plan", [Plan, lambda state: Plan(state, standby=True, brokers=3, shards="2")])
def test_the_first_of_each_kind_has_the_same_port_on_every_platform(plan, tmp_path) -> None:  # type: ignore[no-untyped-def]
    one = plan(tmp_path)
    found = portplan.offsets(one.processes, one.brokers)
    kinds = ["API server", "broker", "HTTP API", "broker's monitoring", "broker's routes"]
    assert [found[role] for role in kinds] == list(range(5))
    first: dict[str, int] = {}
    for process, service in one.processes.items():
        first.setdefault(service, found[portplan.metrics_of(process)])
    assert [first[service] for service in SERVICES] == list(range(5, 5 + len(SERVICES)))
    assert len(set(found.values())) == len(found)


def test_a_service_that_does_not_run_leaves_the_others_their_ports() -> None:
    found = portplan.offsets({"binder": "binder"}, 0)
    assert found["health and metrics of binder"] == 5 + list(SERVICES).index("binder")
    assert "broker" not in found


def test_ports_are_in_the_order_in_which_the_platform_reads_them() -> None:
    first = free_port()
    with portplan.ports({"binder": "binder", "console": "console"}, 1, first=first) as found:
        assert [port - first for port in found] == [9, 10, 1, 3, 4, 2, 0]


def test_a_taken_port_is_named_with_its_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        with (
            pytest.raises(
                Conflict, match=f"port {taken} of 127.0.0.1, for the HTTP API, cannot be used: Address already in use"
            ) as e,
            portplan.ports({}, 0, first=taken - 2),
        ):
            pass
    assert "--ports-from" in e.value.hint


def test_ports_behind_the_last_one_are_refused(tmp_path: Path) -> None:
    largest = Plan(tmp_path, standby=True, brokers=5, shards="64")
    with (
        pytest.raises(InvalidRequest, match="--ports-from 65436: too few ports follow") as e,
        portplan.ports(largest.processes, largest.brokers, first=65_436),
    ):
        pass
    assert e.value.hint == "65380 at most"


def test_a_port_with_closed_connections_of_an_earlier_server_is_free() -> None:
    """Else a platform could not be started again on its ports for a minute."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        connection, _ = server.accept()
        connection.close()  # the first to close keeps the port in TIME_WAIT
        client.close()
    with held(port):
        pass


def test_the_help_lists_the_ports() -> None:
    text = CliRunner().invoke(command, ["--help"]).output
    assert [text.index(line) for line in portplan.table().splitlines()] == sorted(
        text.index(line) for line in portplan.table().splitlines()
    )
    assert "PORT+12  health and metrics of scheduler-core" in text
