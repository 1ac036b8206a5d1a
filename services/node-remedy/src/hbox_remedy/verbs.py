"""What each verb does on this node. Planning only reads: nothing is changed before the plan is in the journal."""

import asyncio
import re
from functools import partial

from hbox_common.clock import monotonic_s
from hbox_common.errors import Unavailable
from hbox_common.model.remedy import NVML_EVENTS, Decision, Verb

from .adapters.commands import Commands, Result
from .adapters.deadline import within
from .adapters.machine import Machine, Process
from .core.dcgm import card_ids
from .core.nvidia import IN_USE, Card, compute_instances, creation, gpu_instances, release_of, settings_of
from .core.plan import Command, Diagnose, Ended, Plan, Step, Terminate, failed, refused, skipped
from .settings import RemedySettings

#: A process that closes the card soon, such as the agent's reading of NVML, does not refuse a reset.
HOLDERS_S, LOOK_AGAIN_S = 5.0, 0.25
ASK_S = 60.0
FABRIC_MANAGER, MODULE = "nvidia-fabricmanager", "nvidia_peermem"
#: PCI Express 7.7.8: the control register of Access Control Services, and its bits P2P Request Redirect and P2P Completion Redirect.
ACS_CONTROL, ACS_REDIRECTS = "ECAP_ACS+0x6.w", 0x04 | 0x08


class Verbs:
    def __init__(self, settings: RemedySettings, machine: Machine, commands: Commands) -> None:
        self._settings, self._machine, self._commands = settings, machine, commands

    async def plan(self, decision: Decision) -> Plan | Ended:
        """The verb's plan; Ended if it cannot begin."""
        try:
            return await self._plan(decision)
        except Unavailable as e:
            return refused(str(e))

    async def _plan(self, decision: Decision) -> Plan | Ended:
        rule = self._settings.rule(decision.verb)
        if rule.hook:
            return Plan((Command(rule.hook, rule.timeout_s),), reboots=decision.verb is Verb.REBOOT)
        match decision.verb:
            case Verb.RESET:
                return await self._reset(decision.entity, rule.timeout_s)
            case Verb.REBOOT:
                return Plan((Command(("systemctl", "reboot"), rule.timeout_s),), reboots=True)
            case Verb.RESTART_FM:
                return await self._restart_fabric_manager(rule.timeout_s)
            case Verb.LOAD_MODULE:
                return Plan((Command(("modprobe", MODULE), rule.timeout_s),))
            case Verb.ACS_OFF:
                return await self._acs_off()
            case Verb.RESTART_DEVICE_PLUGIN:
                return await self._restart_device_plugin()
            case Verb.DIAGNOSE:
                return await self._diagnose(decision.entity, rule.timeout_s)

    async def _reset(self, entity: str, timeout_s: float) -> Plan | Ended:
        cards = await within(self._machine.cards)
        card = next((card for card in cards if f"gpu:{card.uuid}" == entity), None)
        if card is None:
            return failed(f"the driver does not reach {entity}")
        asked = await self._smi(card, "--query-gpu=persistence_mode,mig.mode.current", "--format=csv,noheader")
        modes = settings_of(asked.output) if asked.good else None
        if modes is None:
            return failed(f"nvidia-smi does not answer about the card: {asked.why}")
        persistent, mig = modes
        steps: list[Step] = []
        restore: list[Command] = []
        if persistent:
            steps.append(_smi(card, "-pm", "0"))
            restore.append(_smi(card, "-pm", "1"))
        if mig:
            again = await self._instances(card)
            if isinstance(again, Ended):
                return again
            if again:
                steps += [_smi(card, "-dci", mig=True), _smi(card, "-dgi", mig=True)]
                restore.append(_smi(card, "-cgi", again, "-C", mig=True))
        steps.append(Command(("nvidia-smi", "-i", card.uuid, "--gpu-reset"), timeout_s, refused_by=IN_USE))
        others, ours = await self._holders(card)
        if others:
            return refused("processes have the card open", list(map(str, others)))
        units = sorted({process.unit for process in ours if process.unit in self._settings.stopped_units})
        programs = sorted({process.program for process in ours if process.unit not in units})
        stop = [Command(("systemctl", "stop", unit)) for unit in units]
        ends = [Terminate(program) for program in programs]
        return Plan((*stop, *ends, *steps), (*restore, *(Command(("systemctl", "start", unit)) for unit in units)))

    async def _instances(self, card: Card) -> str | Ended:
        """What makes the card's MIG instances again, which a reset destroys."""
        tables = [await self._smi(card, flag, mig=True) for flag in ("-lgi", "-lci")]
        none = ["No GPU instances found" in tables[0].output, "No compute instances found" in tables[1].output]
        if none[0]:
            return ""
        if any(not table.good for table in tables[: 1 if none[1] else 2]):
            return failed(f"nvidia-smi does not list the card's MIG instances: {tables[0].line}; {tables[1].line}")
        again = creation(gpu_instances(tables[0].output), [] if none[1] else compute_instances(tables[1].output))
        return refused("the card's compute instances could not be made again") if again is None else again

    async def _holders(self, card: Card) -> tuple[list[Process], list[Process]]:
        """Processes that have the card open: those that are not stopped for a reset, and those that are."""
        until = monotonic_s() + HOLDERS_S
        while True:
            holders = await within(partial(self._machine.holders, card))
            stopped = {NVML_EVENTS, *self._settings.stopped_programs}
            ours = [one for one in holders if one.unit in self._settings.stopped_units or one.program in stopped]
            others = [one for one in holders if one not in ours]
            if not others or monotonic_s() >= until:
                return others, ours
            await asyncio.sleep(LOOK_AGAIN_S)

    async def _restart_fabric_manager(self, timeout_s: float) -> Plan | Ended:
        if not await within(self._machine.has_switches):
            return refused("the node has no NVSwitch")
        driver = await within(self._machine.driver)
        asked = await self._commands.run(Command(("nv-fabricmanager", "--version"), ASK_S))
        if not driver or not asked.good or release_of(asked.output) != driver:
            return refused(
                f"the driver is {driver or 'not loaded'}, the fabric manager {release_of(asked.output) or asked.why}"
            )
        return Plan(
            (
                Command(("systemctl", "restart", FABRIC_MANAGER), timeout_s),
                Command(("systemctl", "is-active", "--quiet", FABRIC_MANAGER), ASK_S),
            )
        )

    async def _acs_off(self) -> Plan | Ended:
        steps: list[Command] = []
        for bridge in await within(self._machine.bridges):
            asked = await self._commands.run(Command(("setpci", "-s", bridge, ACS_CONTROL), ASK_S))
            if asked.status is None or asked.missing:
                return failed(asked.why)
            # A bridge without the capability is an error of setpci.
            if asked.good and re.fullmatch(r"[0-9a-f]{4}", asked.line) and int(asked.line, 16) & ACS_REDIRECTS:
                steps.append(Command(("setpci", "-s", bridge, f"{ACS_CONTROL}=0:{ACS_REDIRECTS:x}")))
        return Plan(tuple(steps))

    async def _restart_device_plugin(self) -> Plan | Ended:
        program = self._settings.device_plugin
        running = await within(partial(self._machine.running, program))
        return Plan((Terminate(program),)) if running else failed(f"{program} does not run")

    async def _diagnose(self, entity: str, timeout_s: float) -> Plan | Ended:
        """Of one card, or of all that DCGM lists. A process on a card would take its memory from the tests, and they its speed."""
        cards = [card for card in await within(self._machine.cards) if entity in ("node", f"gpu:{card.uuid}")]
        if not cards:
            return failed(f"the driver does not reach {entity}")
        listed = await self._commands.run(Command(("dcgmi", "discovery", "-l"), ASK_S))
        if listed.missing:
            return skipped("DCGM is not installed on the node")
        ids = card_ids(listed.output) if listed.good else {}
        if absent := [card.uuid for card in cards if card.uuid not in ids]:
            return refused(f"DCGM does not list {', '.join(absent)}: {listed.line if listed.good else listed.why}")
        for card in cards:
            others, _ = await self._holders(card)
            if others:
                return refused(f"processes have {card.uuid} open", list(map(str, others)))
        chosen = ",".join(str(ids[card.uuid]) for card in cards)
        level = str(self._settings.diagnostics_level)
        return Plan((Diagnose(Command(("dcgmi", "diag", "-r", level, "-i", chosen, "-j"), timeout_s)),))

    async def _smi(self, card: Card, *args: str, mig: bool = False) -> Result:
        return await self._commands.run(_smi(card, *args, mig=mig))


def _smi(card: Card, *args: str, mig: bool = False) -> Command:
    if mig:
        return Command(("nvidia-smi", "mig", "-i", card.uuid, *args), ASK_S)
    return Command(("nvidia-smi", "-i", card.uuid, *args), ASK_S)
