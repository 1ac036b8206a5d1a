"""What node-remedy executes of the decisions about its node, and what it publishes."""

import asyncio
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from hbox_common.model.remedy import NVML_EVENTS, Decision, Outcome, Verb

from ...waiting import until
from .remedy_world import CARD, DRIVER, MODES, NODE, PCI, UUID, RemedyWorld, decision

ON: dict[str, dict[str, object]] = {verb.value: {} for verb in Verb}
OFF_ON = [f"nvidia-smi -i {UUID} -pm 0", f"nvidia-smi -i {UUID} --gpu-reset", f"nvidia-smi -i {UUID} -pm 1"]


async def test_a_reset_switches_persistence_off_and_on_again(world: RemedyWorld) -> None:
    asked = decision(Verb.RESET, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.node, end.boot_id, end.decision, end.outcome) == (NODE, "b1", asked, Outcome.DONE)
        assert world.changes == OFF_ON
        assert [one.outcome for one in await world.observed()] == [Outcome.BEGUN, Outcome.DONE]


async def test_the_agents_process_that_waits_for_events_is_ended_before_a_reset_without_a_setting(world: RemedyWorld) -> None:
    asked = decision(Verb.RESET, CARD)
    async with world.real_process(NVML_EVENTS, opened="/dev/nvidia2") as events, world.remedy(ON):
        await world.decides(asked)
        assert (await world.ended(asked)).outcome is Outcome.DONE
        assert events.returncode == -15
    assert world.changes == OFF_ON


async def test_a_repeated_decision_is_executed_once(world: RemedyWorld) -> None:
    asked, other = decision(Verb.RESET, CARD), decision(Verb.LOAD_MODULE)
    async with world.remedy(ON):
        await world.decides(asked)
        await world.ended(asked)
        await world.decides(asked, other)
        await world.ended(other)
    async with world.remedy(ON):
        last = decision(Verb.LOAD_MODULE, attempt=2)
        await world.decides(asked, other, last)
        await world.ended(last)
    assert world.changes.count(f"nvidia-smi -i {UUID} --gpu-reset") == 1
    assert world.changes.count("modprobe nvidia_peermem") == 2


@pytest.mark.parametrize("reason", ["other-boot", "foreign-node", "expired"])
async def test_a_decision_for_another_node_boot_or_time_is_ignored(world: RemedyWorld, reason: str) -> None:
    asked = decision(Verb.REBOOT, valid_s=0.0 if reason == "expired" else 60.0)
    async with world.remedy(ON):
        await world.decides(
            asked, node="n2" if reason == "foreign-node" else NODE, boot_id="b0" if reason == "other-boot" else "b1"
        )
        await until(lambda: f"decision {asked.id} is ignored: {reason}" in world.log.read_text())
        assert world.calls == []
        assert await world.observed() == []


async def test_a_verb_that_is_not_enabled_is_refused(world: RemedyWorld) -> None:
    asked = decision(Verb.REBOOT)
    async with world.remedy({"reset": {}, "reboot": {"mode": "off"}}):
        await world.decides(asked, other := decision(Verb.LOAD_MODULE))
        for refused in (asked, other):
            end = await world.ended(refused)
            assert (end.outcome, end.message) == (Outcome.REFUSED, f"{refused.verb} is off on this node")
        assert world.calls == []


async def test_a_dry_run_reports_the_commands_and_executes_none(world: RemedyWorld) -> None:
    asked = decision(Verb.RESET, CARD)
    async with world.remedy({"reset": {"mode": "dry-run"}}):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.outcome, end.message) == (Outcome.REFUSED, f"dry run: {'; '.join(OFF_ON)}")
        assert world.changes == []


async def test_nothing_is_executed_while_the_stop_file_exists(world: RemedyWorld) -> None:
    stop = world.file("state/stop", "")
    asked, later = decision(Verb.LOAD_MODULE), decision(Verb.LOAD_MODULE, attempt=2)
    async with world.remedy(ON):
        await world.decides(asked)
        assert "stop exists" in (await world.ended(asked)).message
        stop.unlink()
        await world.decides(later)
        assert (await world.ended(later)).outcome is Outcome.DONE
        assert world.changes == ["modprobe nvidia_peermem"]


async def test_a_verb_is_refused_beyond_its_limit_also_after_a_restart(world: RemedyWorld) -> None:
    first, second = decision(Verb.LOAD_MODULE), decision(Verb.LOAD_MODULE, incident="i2")
    verbs = {"load-module": {"most": 1, "per_s": 3600}}
    async with world.remedy(verbs):
        await world.decides(first)
        await world.ended(first)
    async with world.remedy(verbs):
        await world.decides(second)
        end = await world.ended(second)
        assert (end.outcome, end.message) == (Outcome.REFUSED, "limit of the node: 1 times in 3600 s")
        assert world.changes == ["modprobe nvidia_peermem"]


async def test_a_withdrawn_decision_is_not_begun(world: RemedyWorld) -> None:
    running, waiting = decision(Verb.LOAD_MODULE), decision(Verb.REBOOT)
    hold = world.holds("modprobe", "nvidia_peermem")
    async with world.remedy(ON):
        await world.decides(running, waiting)
        await world.called("modprobe nvidia_peermem")
        await world.decides(running, last := decision(Verb.ACS_OFF))
        await asyncio.sleep(1.0)  # the second message is read 0.2 s after its notice
        hold.unlink()
        await world.ended(last)
        assert world.changes == ["modprobe nvidia_peermem"]


async def test_a_renewed_decision_is_the_same_decision(world: RemedyWorld) -> None:
    """health-monitor extends the expiry of a decision until it has the result."""
    running, waiting = decision(Verb.LOAD_MODULE), decision(Verb.RESTART_DEVICE_PLUGIN, valid_s=1.0)
    hold = world.holds("modprobe", "nvidia_peermem")
    async with world.real_process("nvidia-device-plugin") as plugin, world.remedy(ON):
        await world.decides(running, waiting)
        await world.called("modprobe nvidia_peermem")
        renewed = replace(waiting, expires=waiting.expires + 60)
        await world.decides(running, renewed)
        await asyncio.sleep(1.2)
        hold.unlink()
        assert (await world.ended(renewed)).outcome is Outcome.DONE
        assert plugin.returncode == -15
    assert world.changes == ["modprobe nvidia_peermem"]


async def test_nothing_begins_if_the_journal_cannot_be_written(world: RemedyWorld) -> None:
    asked = decision(Verb.LOAD_MODULE)
    async with world.remedy(ON) as process:
        await until((world.root / "state" / "journal.jsonl").exists)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))  # also of the log
        await world.decides(asked)
        end = await world.ended(asked)
        assert end.outcome is Outcome.REFUSED
        assert "cannot be written" in end.message
    assert world.calls == []


# --- kills


async def test_a_killed_reset_is_failed_and_restored_and_not_executed_again(world: RemedyWorld) -> None:
    asked = decision(Verb.RESET, CARD)
    hold = world.holds("nvidia-smi", "--gpu-reset")
    async with world.remedy(ON, kill=True):
        await world.decides(asked)
        await world.called(OFF_ON[1])
    hold.unlink()
    await world.nats.stop()
    async with world.remedy(ON):
        await world.called(OFF_ON[2])  # the node is restored without the broker
        await world.nats.start()
        end = await world.ended(asked)
        assert (end.outcome, end.message) == (Outcome.FAILED, "interrupted: node-remedy ended")
        assert world.changes == OFF_ON


async def test_a_boot_ends_a_reboot_well_and_another_remedy_badly(world: RemedyWorld) -> None:
    reboot = decision(Verb.REBOOT)
    async with world.remedy(ON, kill=True):
        await world.decides(reboot)
        await world.called("systemctl reboot")
    world.boots("b2")
    module = decision(Verb.LOAD_MODULE)
    hold = world.holds("modprobe", "nvidia_peermem")
    async with world.remedy(ON, kill=True):
        end = await world.ended(reboot)
        assert (end.outcome, end.boot_id, end.message) == (Outcome.DONE, "b1", "the node has booted")
        await world.decides(module, boot_id="b2")
        await world.called("modprobe nvidia_peermem")
    hold.unlink()
    world.boots("b3")
    async with world.remedy(ON):
        end = await world.ended(module)
        assert (end.outcome, end.message) == (Outcome.FAILED, "interrupted: the node has booted")
    assert world.changes.count("systemctl reboot") == 1


async def test_a_restart_while_the_node_goes_down_does_not_end_its_reboot(world: RemedyWorld) -> None:
    reboot, module = decision(Verb.REBOOT), decision(Verb.LOAD_MODULE)
    async with world.remedy(ON):
        await world.decides(reboot)
        await world.called("systemctl reboot")
    async with world.remedy(ON):  # the kubelet starts it again before the node is down
        await world.decides(reboot, module)
        await asyncio.sleep(2)
        assert [one.outcome for one in await world.observed()] == [Outcome.BEGUN]
        assert world.changes == ["systemctl reboot"]
    world.boots("b2")
    async with world.remedy(ON):
        assert (await world.ended(reboot)).outcome is Outcome.DONE


async def test_a_remedy_that_runs_at_sigterm_ends_and_is_recorded(world: RemedyWorld) -> None:
    asked = decision(Verb.RESET, CARD)
    hold = world.holds("nvidia-smi", "--gpu-reset")
    async with world.remedy(ON) as process:
        await world.decides(asked)
        await world.called(OFF_ON[1])
        process.terminate()
        await asyncio.sleep(1)
        hold.unlink()
        assert (await world.ended(asked)).outcome is Outcome.DONE
        async with asyncio.timeout(10):
            await process.wait()
    assert world.changes == OFF_ON


@pytest.mark.parametrize("held", ["--gpu-reset", "/var/log/nvidia-bug-report-i1.log"])
async def test_no_bug_report_is_written_after_sigterm(world: RemedyWorld, held: str) -> None:
    """It would take longer than the grace period: SIGTERM comes during the second reset, or during the report itself."""
    world.answers("nvidia-smi", "--gpu-reset", "Unable to reset GPU", status=3)
    first, second = decision(Verb.RESET, CARD), decision(Verb.RESET, CARD, attempt=2)
    report = f"nvidia-bug-report.sh --output-file {'/var/log/nvidia-bug-report-i1.log'}"
    during_report = held != "--gpu-reset"
    async with world.remedy(ON) as process:
        await world.decides(first)
        assert (await world.ended(first)).outcome is Outcome.FAILED
        hold = world.holds("nvidia-bug-report.sh" if during_report else "nvidia-smi", held)
        calls = len(world.changes)
        await world.decides(second)
        await until(lambda: (world.changes[-1] == report) if during_report else len(world.changes) > calls + 1)
        process.terminate()
        await asyncio.sleep(1)
        if not during_report:
            hold.unlink()
        assert (await world.ended(second)).outcome is Outcome.FAILED
        async with asyncio.timeout(10):
            await process.wait()
    assert (report in world.changes) is during_report


@pytest.mark.parametrize("incident", ["../../etc/cron.d/x", "-x", "a b", "a;reboot", "a\nb", ""])
async def test_a_decision_with_other_characters_is_ignored(world: RemedyWorld, incident: str) -> None:
    bad, good = decision(Verb.LOAD_MODULE, incident=incident), decision(Verb.LOAD_MODULE)
    async with world.remedy(ON):
        await world.decides(bad, good)
        assert (await world.ended(good)).outcome is Outcome.DONE
    assert world.changes == ["modprobe nvidia_peermem"]


async def test_a_process_whose_files_hang_refuses_a_reset(world: RemedyWorld) -> None:
    """As of a process in an uninterruptible call of the driver: a read of its command line does not return."""
    folder = world.runs(77, "python")
    (folder / "cmdline").unlink()
    os.mkfifo(folder / "cmdline")
    asked = decision(Verb.RESET, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
        assert end.outcome is Outcome.REFUSED
        assert "has not been read for" in end.message
        module = decision(Verb.LOAD_MODULE)
        await world.decides(module)
        assert (await world.ended(module)).outcome is Outcome.DONE
    assert world.changes == ["modprobe nvidia_peermem"]


async def test_an_end_that_was_not_published_is_published_after_the_restart(world: RemedyWorld) -> None:
    asked = decision(Verb.LOAD_MODULE)
    hold = world.holds("modprobe", "nvidia_peermem")
    async with world.remedy(ON, kill=True):
        await world.decides(asked)
        await world.called("modprobe nvidia_peermem")
        await world.nats.stop()
        hold.unlink()
        journal = world.root / "state" / "journal.jsonl"
        await until(lambda: '"end"' in journal.read_text())
    await world.nats.start()
    await world.decides()  # the decision is no longer valid
    async with world.remedy(ON):
        assert (await world.ended(asked)).outcome is Outcome.DONE
        assert world.changes == ["modprobe nvidia_peermem"]


async def test_two_programs_do_not_share_a_journal(world: RemedyWorld) -> None:
    async with world.remedy(ON):
        await until((world.root / "state" / "lock").exists)
        async with world.remedy(ON) as second:
            async with asyncio.timeout(20):
                assert await second.wait() == 6
            assert "cannot be opened" in world.log.read_text()


async def test_an_unreadable_journal_stops_the_program(world: RemedyWorld) -> None:
    world.file("state/journal.jsonl", '{"entry": {}}\n')
    async with world.remedy(ON) as process, asyncio.timeout(20):
        assert await process.wait() == 2
    assert "line 1 of the journal" in world.log.read_text()


# --- verbs


async def test_a_card_that_a_process_has_open_is_not_reset(world: RemedyWorld) -> None:
    world.runs(4711, "python3")
    world.runs(4712, "other", opened="/dev/nvidia22")
    world.runs(4713, "nvidia-persistenced")
    asked = decision(Verb.RESET, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.outcome, end.holders) == (Outcome.REFUSED, ("4711 python3",))
        assert world.changes == []


async def test_a_process_that_closes_the_card_soon_does_not_prevent_its_reset(world: RemedyWorld) -> None:
    asked = decision(Verb.RESET, CARD)
    async with world.real_process("nvml-reader", opened="/dev/nvidia2") as process, world.remedy(ON):
        await world.decides(asked)
        await until(lambda: any(call.endswith(MODES) for call in world.calls))
        process.kill()
        assert (await world.ended(asked)).outcome is Outcome.DONE


async def test_configured_units_and_programs_are_stopped_for_a_reset(world: RemedyWorld) -> None:
    asked = decision(Verb.RESET, CARD)
    world.runs(4711, "nv-hostengine", unit="nvidia-dcgm")
    settings = {"HBOX_STOPPED_UNITS": '["nvidia-dcgm", "other"]', "HBOX_STOPPED_PROGRAMS": '["dcgm-exporter"]'}
    async with world.real_process("dcgm-exporter", opened="/dev/nvidia2") as process, world.remedy(ON, settings):
        await world.decides(asked)
        assert (await world.ended(asked)).outcome is Outcome.DONE
        assert process.returncode == -15
    assert world.changes == ["systemctl stop nvidia-dcgm", *OFF_ON, "systemctl start nvidia-dcgm"]


async def test_mig_instances_are_destroyed_before_a_reset_and_made_again(world: RemedyWorld) -> None:
    world.answers("nvidia-smi", MODES, "Disabled, Enabled\n")
    world.answers("nvidia-smi", "-lgi", GPU_INSTANCES)
    world.answers("nvidia-smi", "-lci", COMPUTE_INSTANCES)
    asked = decision(Verb.RESET, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        assert (await world.ended(asked)).outcome is Outcome.DONE
    mig = f"nvidia-smi mig -i {UUID}"
    assert world.changes == [f"{mig} -dci", f"{mig} -dgi", OFF_ON[1], f"{mig} -cgi 9:0,14:4 -C"]


async def test_mig_instances_that_could_not_be_made_again_are_not_destroyed(world: RemedyWorld) -> None:
    world.answers("nvidia-smi", MODES, "Disabled, Enabled\n")
    world.answers("nvidia-smi", "-lgi", GPU_INSTANCES)
    world.answers("nvidia-smi", "-lci", COMPUTE_INSTANCES.replace("|   0      1  ", "|   0      2  "))
    asked = decision(Verb.RESET, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.outcome, end.message) == (Outcome.REFUSED, "the card's compute instances could not be made again")
        assert world.changes == []


async def test_a_reset_that_nvidia_smi_refuses_changes_nothing(world: RemedyWorld) -> None:
    text = f"The following GPUs could not be reset:\n  GPU 00000000:{PCI[5:]}: In use by another client\n"
    world.answers("nvidia-smi", "--gpu-reset", text, status=255)
    asked = decision(Verb.RESET, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
        assert end.outcome is Outcome.REFUSED
        assert "In use by another client" in end.message
        assert world.changes == OFF_ON


async def test_a_second_failed_reset_leaves_a_bug_report(world: RemedyWorld) -> None:
    world.answers("nvidia-smi", "--gpu-reset", "Unknown Error\n", status=3)
    first, second = decision(Verb.RESET, CARD, attempt=2), decision(Verb.RESET, CARD, attempt=3)  # the first one was refused
    async with world.remedy(ON):
        await world.decides(first)
        assert (await world.ended(first)).outcome is Outcome.FAILED
        assert world.changes == OFF_ON
        await world.decides(second)
        end = await world.ended(second)
        assert (end.outcome, end.message) == (Outcome.FAILED, f"{OFF_ON[1]}: exit status 3: Unknown Error")
        report = "nvidia-bug-report.sh --output-file /var/log/nvidia-bug-report-i1.log"
        assert world.changes == [*OFF_ON, *OFF_ON[:2], report, OFF_ON[2]]


async def test_a_reset_fails_if_the_driver_does_not_reach_the_card_or_it_is_not_as_before(world: RemedyWorld) -> None:
    lost, other = decision(Verb.RESET, "gpu:GPU-0"), decision(Verb.RESET, CARD, incident="i2")
    world.answers("nvidia-smi", "1", "Failed to set persistence mode\n", status=4)
    async with world.remedy(ON):
        await world.decides(lost, other)
        end = await world.ended(lost)
        assert (end.outcome, end.message) == (Outcome.FAILED, "the driver does not reach gpu:GPU-0")
        end = await world.ended(other)
        assert end.outcome is Outcome.FAILED
        assert "Failed to set persistence mode" in end.message


async def test_steps_after_a_failed_one_are_not_executed(world: RemedyWorld) -> None:
    world.answers("nvidia-smi", "0", "Insufficient Permissions\n", status=4)
    asked = decision(Verb.RESET, CARD)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.outcome, end.message) == (Outcome.FAILED, f"{OFF_ON[0]}: exit status 4: Insufficient Permissions")
        assert world.changes == [OFF_ON[0], OFF_ON[2]]


async def test_the_fabric_manager_is_restarted_once_an_hour(world: RemedyWorld) -> None:
    world.file("proc/driver/nvidia-nvswitch/devices/0000:05:00.0", "")
    first, second = decision(Verb.RESTART_FM), decision(Verb.RESTART_FM, attempt=2)
    async with world.remedy(ON):
        await world.decides(first, second)
        assert (await world.ended(first)).outcome is Outcome.DONE
        assert (await world.ended(second)).message == "limit of the node: 1 times in 3600 s"
    unit = "nvidia-fabricmanager"
    assert world.changes == [f"systemctl restart {unit}", f"systemctl is-active --quiet {unit}"]


@pytest.mark.parametrize(
    ("switches", "version", "why"),
    [
        (False, DRIVER, "the node has no NVSwitch"),
        (True, "535.104.05", f"the driver is {DRIVER}, the fabric manager 535.104.05"),
    ],
)
async def test_a_fabric_manager_that_cannot_serve_the_driver_is_not_restarted(
    world: RemedyWorld, switches: bool, version: str, why: str
) -> None:
    if switches:
        world.file("proc/driver/nvidia-nvswitch/devices/0000:05:00.0", "")
    world.answers("nv-fabricmanager", "--version", f"Fabric Manager version is : {version}\n")
    asked = decision(Verb.RESTART_FM)
    async with world.remedy(ON):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.outcome, end.message) == (Outcome.REFUSED, why)
        assert world.changes == []


async def test_acs_is_switched_off_on_bridges_between_a_card_and_an_adapter_that_redirect(world: RemedyWorld) -> None:
    """A switch with a bridge for each: that of the card redirects, that of the adapter does not. Bits other than those of redirection stay."""
    top, up, down = "0000:15:01.0", "0000:17:00.0", "0000:17:01.0"
    for link, place in ((f"bus/pci/devices/{PCI}", f"{up}/{PCI}"), ("class/infiniband/mlx5_0/device", f"{down}/0000:19:00.0")):
        device = world.root / "sys/devices/pci0000:15" / top / "0000:16:00.0" / place
        device.mkdir(parents=True)
        symbolic = world.root / "sys" / link
        symbolic.parent.mkdir(parents=True)
        symbolic.symlink_to(device)
    script = world.root / "bin" / "setpci"
    text = script.read_text().replace(
        "exit 0", f'case "$*" in *"{up} "*ECAP_ACS+0x6.w) echo 001d ;; *) echo 0011 ;; esac\nexit 0'
    )
    script.write_text(text)
    asked = decision(Verb.ACS_OFF)
    async with world.remedy(ON):
        await world.decides(asked)
        assert (await world.ended(asked)).outcome is Outcome.DONE
    assert world.calls == [
        f"setpci -s {up} ECAP_ACS+0x6.w",
        f"setpci -s {down} ECAP_ACS+0x6.w",
        f"setpci -s {up} ECAP_ACS+0x6.w=0:c",
    ]


async def test_the_device_plugin_is_terminated_and_no_other_process(world: RemedyWorld) -> None:
    asked, again = decision(Verb.RESTART_DEVICE_PLUGIN), decision(Verb.RESTART_DEVICE_PLUGIN, attempt=2)
    async with world.real_process("other") as other, world.real_process("nvidia-device-plugin") as plugin, world.remedy(ON):
        await world.decides(asked)
        assert (await world.ended(asked)).outcome is Outcome.DONE
        assert (plugin.returncode, other.returncode) == (-15, None)
        await world.decides(again)
        assert (await world.ended(again)).message == "nvidia-device-plugin does not run"


async def test_a_hook_replaces_a_verb(world: RemedyWorld, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    script = world.root / "bin" / "power-cycle"
    script.write_text(
        f'#!/bin/sh\necho "$1 $HBOX_NODE $HBOX_VERB $HBOX_ENTITY $HBOX_INCIDENT $HBOX_ATTEMPT" > {seen}\n'
        'echo "the machine is off"\nexit "$1"\n'
    )
    asked: Decision = decision(Verb.RESET, CARD)
    async with world.remedy({"reset": {"hook": ["power-cycle", "9"]}}):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.outcome, end.message) == (Outcome.FAILED, "power-cycle 9: exit status 9: the machine is off")
        assert seen.read_text() == f"9 {NODE} reset {CARD} i1 1\n"
        assert world.calls == []


async def test_a_command_that_does_not_end_is_killed(world: RemedyWorld) -> None:
    world.holds("modprobe", "nvidia_peermem")
    asked = decision(Verb.LOAD_MODULE)
    async with world.remedy({"load-module": {"timeout_s": 0.5}}):
        await world.decides(asked)
        end = await world.ended(asked)
        assert (end.outcome, end.message) == (Outcome.FAILED, "modprobe nvidia_peermem: modprobe did not end within 0.5 s")


async def test_commands_run_behind_the_configured_one(world: RemedyWorld) -> None:
    enter = world.root / "bin" / "enter"
    enter.write_text(f'#!/bin/sh\necho "enter $*" >> {world.root}/calls\nexec "$@"\n')
    enter.chmod(0o755)
    asked = decision(Verb.LOAD_MODULE)
    async with world.remedy(ON, {"HBOX_ENTER": '["enter"]'}):
        await world.decides(asked)
        assert (await world.ended(asked)).outcome is Outcome.DONE
        assert world.calls == ["enter modprobe nvidia_peermem", "modprobe nvidia_peermem"]


async def test_nothing_is_executed_without_a_journal(world: RemedyWorld) -> None:
    world.file("state", "no folder")
    async with world.remedy(ON) as process, asyncio.timeout(20):
        assert await process.wait() == 6
    assert "cannot be opened" in world.log.read_text()


GPU_INSTANCES = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 3g.20gb          9        1          0:4     |
+-------------------------------------------------------+
|   0  MIG 2g.10gb         14        3          4:2     |
+-------------------------------------------------------+
"""
COMPUTE_INSTANCES = """\
+--------------------------------------------------------------------+
| Compute instances:                                                 |
| GPU     GPU       Name             Profile   Instance   Placement  |
|       Instance                       ID        ID       Start:Size |
|         ID                                                         |
|====================================================================|
|   0      1       MIG 3g.20gb          2         0          0:3     |
+--------------------------------------------------------------------+
|   0      3       MIG 2g.10gb          1         0          0:2     |
+--------------------------------------------------------------------+
"""
