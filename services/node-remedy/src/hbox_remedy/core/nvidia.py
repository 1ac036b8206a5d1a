"""What nvidia-smi, the driver's files and the fabric manager print."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: nvidia-smi's answer when it cannot reset a card that a process has open; its exit status is 255.
IN_USE = ("In use by another client", "currently being used by")


@dataclass(frozen=True, slots=True)
class Card:
    uuid: str
    pci: str  #: as in /sys, such as 0000:18:00.0
    minor: int  #: of /dev/nvidia<minor>


def card_of(pci: str, information: str) -> Card | None:
    """Of /proc/driver/nvidia/gpus/<pci>/information; None: the driver does not reach the card, or the file has another format."""
    values = dict(re.findall(r"^([^:\n]+):\s*(\S.*?)\s*$", information, re.M))
    uuid, minor = values.get("GPU UUID", ""), values.get("Device Minor", "")
    if not uuid.startswith("GPU-") or "?" in uuid or not minor.isdecimal():
        return None
    return Card(uuid, pci, int(minor))


def settings_of(csv: str) -> tuple[bool, bool] | None:
    """Persistence mode and MIG mode of one card, by `--query-gpu=persistence_mode,mig.mode.current --format=csv,noheader`; None: another answer."""
    values = [value.strip() for value in csv.strip().split(",")]
    if len(values) != 2 or values[0] not in ("Enabled", "Disabled"):
        return None
    return values[0] == "Enabled", values[1] == "Enabled"


@dataclass(frozen=True, slots=True)
class GpuInstance:
    profile: int
    id: int
    start: int  #: of its placement


_GPU_INSTANCE = re.compile(r"^\|\s+\d+\s+MIG \S+\s+(\d+)\s+(\d+)\s+(\d+):\d+\s+\|", re.M)
_COMPUTE_INSTANCE = re.compile(r"^\|\s+\d+\s+(\d+)\s+MIG \S+\s+\d+\s+\d+\s+\d+:\d+\s+\|", re.M)


def gpu_instances(table: str) -> list[GpuInstance]:
    """Of `nvidia-smi mig -lgi` for one card."""
    return [GpuInstance(int(profile), int(id), int(start)) for profile, id, start in _GPU_INSTANCE.findall(table)]


def compute_instances(table: str) -> list[int]:
    """Of `nvidia-smi mig -lci` for one card: the GPU instance of each compute instance."""
    return [int(instance) for instance in _COMPUTE_INSTANCE.findall(table)]


def creation(instances: Sequence[GpuInstance], computing: Iterable[int]) -> str | None:
    """The argument of `nvidia-smi mig -C -cgi` that makes these instances again, each with one compute instance; None: some have another number of them."""
    if sorted(computing) != sorted(instance.id for instance in instances):
        return None
    return ",".join(f"{instance.profile}:{instance.start}" for instance in sorted(instances, key=lambda one: one.start))


def release_of(text: str) -> str:
    """The first version number in the text, such as 550.54.15; empty: there is none."""
    found = re.search(r"\d+\.\d+(?:\.\d+)?", text)
    return found[0] if found else ""
