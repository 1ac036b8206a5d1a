"""What the services export, and which metrics an expression of PromQL names."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from hbox_cli.services import ALONE, REPAIRING, SERVICES
from hbox_common.telemetry.metrics import REGISTRY
from hbox_jobs.adapters import waits
from hbox_ledger import cardmetrics, queuemetrics

ROOT = Path(__file__).parents[2]
MONITORING = ROOT / "helm" / "hbox" / "files" / "monitoring"
RULES: Mapping[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text())

#: Of kube-apiserver, as `tests/real/test_real_admission_webhook.py` finds them there.
KUBERNETES = frozenset({"apiserver_admission_webhook_fail_open_count"})
#: Of NVIDIA's dcgm-exporter.
DCGM = frozenset(
    f"DCGM_FI_{name}"
    for name in (
        "DEV_ECC_DBE_VOL_TOTAL",
        "DEV_ECC_SBE_AGG_TOTAL",
        "DEV_FB_FREE",
        "DEV_FB_RESERVED",
        "DEV_FB_USED",
        "DEV_GPU_TEMP",
        "DEV_GPU_TEMP_LIMIT",
        "DEV_GPU_UTIL",
        "DEV_MEMORY_TEMP",
        "DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL",
        "DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL",
        "DEV_PCIE_REPLAY_COUNTER",
        "DEV_POWER_VIOLATION",
        "DEV_ROW_REMAP_FAILURE",
        "DEV_THERMAL_VIOLATION",
        "DEV_UNCORRECTABLE_REMAPPED_ROWS",
        "PROF_GR_ENGINE_ACTIVE",
        "PROF_SM_ACTIVE",
    )
)

_SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
#: Words of PromQL that stand where a metric could.
_WORDS = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan", "by", "without", "on", "ignoring"})


@cache
def exported() -> frozenset[str]:
    """Names of the series of all services: of their registries once their modules are loaded, and of the pages below /metrics."""
    importlib.import_module("hbox_common.bus.metrics")
    importlib.import_module("hbox_common.runtime")
    for module in (*SERVICES.values(), *ALONE.values(), *REPAIRING.values()):
        importlib.import_module(f"{module}.metrics")
    families = {family.name: family.type for family in (*queuemetrics.FAMILIES, *waits.FAMILIES)}
    pages = {name + suffix for name, kind in families.items() for suffix in (_SUFFIXES[kind] if kind == "histogram" else ("",))}
    registered = {family.name + suffix for family in REGISTRY.collect() for suffix in _SUFFIXES.get(family.type, ("",))}
    return frozenset({*registered, *pages, *cardmetrics.NAMES, "up"})


def of_alone() -> frozenset[str]:
    """Of services that are no part of `hbox up`."""
    modules = tuple(f"{module}_" for module in (*ALONE.values(), *REPAIRING.values()))
    return frozenset(name for name in exported() if name.startswith(modules))


def of_exposition(text: str) -> frozenset[str]:
    """The same, out of what /metrics of a process says: of metrics without a series yet, too."""
    types = re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M)
    return frozenset(
        name + ("" if kind == "counter" else suffix) for name, kind in types for suffix in _SUFFIXES.get(kind, ("",))
    )


def recorded() -> frozenset[str]:
    """Names that recording rules make."""
    return frozenset(rule["record"] for group in RULES["groups"] for rule in group["rules"] if "record" in rule)


def metrics_of(expression: str) -> frozenset[str]:
    """The metrics that an expression reads."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'', '""', expression)
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]", " ", bare)
    bare = re.sub(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", bare)
    names = re.findall(r"(?<![\w.:])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])", bare)
    return frozenset(names) - _WORDS
