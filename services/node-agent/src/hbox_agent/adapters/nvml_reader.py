"""`python -m hbox_agent.adapters.nvml_reader`: queries NVIDIA's management library once, and exits. Prints a line of JSON for each known fact.

It is a separate program because of NVML's effects on its callers: a call into a hanging driver never returns, a library of another version than the driver may
terminate the process, and a card cannot be reset while an NVML client is alive. Each line is printed as soon as the fact is known, and a line announces each
card's query: the reader knows where the program stopped.
"""

import ctypes
import json
import re
import sys
from collections.abc import Callable
from typing import Any

try:
    import pynvml
except ImportError:
    pynvml = None

_LINKS, _INSTANCES, _CARDS, _NUMA_MASKS = 36, 8, 64, 4
#: Fields of nvmlDeviceGetFieldValues; 226 and 227, which state the same in part, are deprecated.
_RECOVERY_ACTION, _SLOWDOWN_TLIMIT = 230, 194
#: With this argument the checksums of each card's InfoROM are verified, which reads its flash.
_INFOROM = "--inforom"


def main() -> int:
    """1 where NVML cannot be asked at all."""
    if pynvml is None:
        return _print_fields(problem="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as e:
        return _print_fields(problem=f"NVML does not start: {_error_text(e)}", init=getattr(e, "value", 999))
    try:
        _print_fields(driver=_tried({}, "driver", pynvml.nvmlSystemGetDriverVersion, pynvml) or "")
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as e:
        return _print_fields(problem=f"NVML does not count its cards: {_error_text(e)}")
    for index in range(min(count, _CARDS)):
        _print_fields(asking=index)
        _print_fields(card=_card(pynvml, index))
    _print_fields(count=count)
    pynvml.nvmlShutdown()
    return 0


def _print_fields(**fields: Any) -> int:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()
    return int("problem" in fields)


def _error_text(error: Exception) -> str:
    """With the code: the words are the library's own, and may be none."""
    try:
        return f"{error} (code {getattr(error, 'value', '?')})"
    except (UnicodeDecodeError, TypeError, ValueError):
        return f"code {getattr(error, 'value', '?')}"


def _tried(errors: dict[str, str], what: str, ask: Callable[[], Any], nvml: Any) -> Any:
    """None if the card does not support the query or does not answer; `errors` then contains the reason."""
    try:
        found = ask()
    except UnicodeDecodeError as e:
        return bytes(e.object).decode(errors="replace")
    except nvml.NVMLError as e:
        if getattr(e, "value", None) == nvml.NVML_ERROR_GPU_IS_LOST:
            errors["lost"] = _error_text(e)
        elif getattr(e, "value", None) not in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND):
            errors[what] = _error_text(e)
        return None
    except (AttributeError, TypeError, ValueError) as e:  # an older nvidia-ml-py
        errors[what] = f"{type(e).__name__}: {e}"
        return None
    return found


def _card(nvml: Any, index: int) -> dict[str, Any]:
    errors: dict[str, str] = {}

    def ask(what: str, call: Callable[[], Any]) -> Any:
        return None if "lost" in errors else _tried(errors, what, call, nvml)

    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as e:
        code = getattr(e, "value", 999)
        errors["lost" if code == nvml.NVML_ERROR_GPU_IS_LOST else "handle"] = _error_text(e)
        return {"index": index, "errors": errors, "health": {"every_call": code}}
    return {
        "index": index,
        "uuid": ask("uuid", lambda: nvml.nvmlDeviceGetUUID(handle)),
        "address": ask("address", lambda: _text(nvml.nvmlDeviceGetPciInfo(handle).busId)),
        "model": ask("model", lambda: nvml.nvmlDeviceGetName(handle)),
        "memory": ask("memory", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total)),
        "numa": ask("numa", lambda: _numa(nvml, handle)),
        "mig": (mig := ask("mig", lambda: list(nvml.nvmlDeviceGetMigMode(handle)))),
        "instances": ask("instances", lambda: _instances(nvml, handle)) if mig and mig[0] else None,
        "links": ask("links", lambda: _links(nvml, handle)),
        "fabric": ask("fabric", lambda: _fabric(nvml, handle)),
        "ecc": ask("ecc", lambda: list(nvml.nvmlDeviceGetEccMode(handle))),
        "remapped": ask("remapped rows", lambda: list(nvml.nvmlDeviceGetRemappedRows(handle))),
        "retired": ask("retired pages", lambda: int(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle))),
        "errors": errors,
        "health": {"every_call": nvml.NVML_ERROR_GPU_IS_LOST} if "lost" in errors else _health(nvml, handle),
    }


def _health(nvml: Any, handle: Any) -> dict[str, Any]:
    """For each question its answer, or `{"error": code}`; the recovery action is the first. A card that is lost is asked nothing more."""
    found: dict[str, Any] = {}

    def ask(what: str, call: Callable[[], Any]) -> None:
        if found.get("lost"):
            return
        try:
            found[what] = call()
        except nvml.NVMLError as e:
            code = getattr(e, "value", 999)
            found[what] = {"error": code}
            found["lost"] = code == nvml.NVML_ERROR_GPU_IS_LOST
        except (AttributeError, TypeError, ValueError, UnicodeDecodeError):  # an older nvidia-ml-py
            found[what] = {"error": nvml.NVML_ERROR_FUNCTION_NOT_FOUND}

    fields: dict[int, Any] = {}

    def field(id_: int) -> int:
        if not fields:
            for one in nvml.nvmlDeviceGetFieldValues(handle, [_RECOVERY_ACTION, _SLOWDOWN_TLIMIT]):
                fields[one.fieldId] = one
        one = fields[id_]
        if one.nvmlReturn != nvml.NVML_SUCCESS:
            raise nvml.NVMLError(one.nvmlReturn)
        return int(one.value.siVal)

    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
    volatile, aggregate = nvml.NVML_VOLATILE_ECC, nvml.NVML_AGGREGATE_ECC
    ask("recovery_action", lambda: field(_RECOVERY_ACTION))
    ask("remapped", lambda: list(nvml.nvmlDeviceGetRemappedRows(handle)))
    ask("histogram", lambda: _histogram(nvml, handle))
    ask("sram", lambda: _sram(nvml, handle))
    ask("ecc_dbe_volatile", lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, uncorrected, volatile)))
    ask("ecc_sbe_volatile", lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, corrected, volatile)))
    ask("ecc_sbe_aggregate", lambda: int(nvml.nvmlDeviceGetTotalEccErrors(handle, corrected, aggregate)))
    ask(
        "ecc_dram_aggregate",
        lambda: int(nvml.nvmlDeviceGetMemoryErrorCounter(handle, uncorrected, aggregate, nvml.NVML_MEMORY_LOCATION_DRAM)),
    )
    ask("repair", lambda: list(nvml.nvmlDeviceGetRepairStatus(handle)))
    ask("unrepairable_memory", lambda: int(nvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(handle)))
    ask("reasons", lambda: int(nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)))
    ask("tlimit_margin", lambda: int(nvml.nvmlDeviceGetMarginTemperature(handle)))
    ask("slowdown_tlimit", lambda: field(_SLOWDOWN_TLIMIT))
    ask("persistence", lambda: int(nvml.nvmlDeviceGetPersistenceMode(handle)))
    ask("pcie_width", lambda: int(nvml.nvmlDeviceGetCurrPcieLinkWidth(handle)))
    ask("pcie_width_max", lambda: int(nvml.nvmlDeviceGetMaxPcieLinkWidth(handle)))
    if _INFOROM in sys.argv[1:]:
        ask("inforom_validate", lambda: _inforom(nvml, handle))
    return found


def _histogram(nvml: Any, handle: Any) -> list[int]:
    found = nvml.nvmlDeviceGetRowRemapperHistogram(handle)
    return [int(getattr(found, name)) for name in ("max", "high", "partial", "low", "none")]


def _sram(nvml: Any, handle: Any) -> list[int]:
    """Parity and SEC-DED errors since the card was made, and whether they are above NVIDIA's threshold."""
    status = nvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = nvml.nvmlEccSramErrorStatus_v1
    nvml.nvmlDeviceGetSramEccErrorStatus(handle, ctypes.byref(status))
    return [int(status.aggregateUncParity), int(status.aggregateUncSecDed), int(status.bThresholdExceeded)]


def _inforom(nvml: Any, handle: Any) -> int:
    """0, or NVML's return code: a corrupted InfoROM is an answer."""
    try:
        nvml.nvmlDeviceValidateInforom(handle)
    except nvml.NVMLError as e:
        if getattr(e, "value", None) != nvml.NVML_ERROR_CORRUPTED_INFOROM:
            raise
        return int(e.value)
    return 0


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _numa(nvml: Any, handle: Any) -> list[int]:
    """NUMA nodes whose memory is nearest."""
    masks = nvml.nvmlDeviceGetMemoryAffinity(handle, _NUMA_MASKS, nvml.NVML_AFFINITY_SCOPE_NODE)
    return [64 * at + bit for at, word in enumerate(masks) for bit in range(64) if int(word) >> bit & 1]


def _instances(nvml: Any, handle: Any) -> list[list[str]]:
    found = []
    for at in range(min(nvml.nvmlDeviceGetMaxMigDeviceCount(handle), _INSTANCES)):
        try:
            one = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at)
        except nvml.NVMLError as e:
            if getattr(e, "value", None) in (nvml.NVML_ERROR_NOT_FOUND, nvml.NVML_ERROR_INVALID_ARGUMENT):
                continue
            raise
        name = re.search(r"MIG (\S+)$", nvml.nvmlDeviceGetName(one))
        found.append([nvml.nvmlDeviceGetUUID(one), name[1] if name else ""])
    return found


def _links(nvml: Any, handle: Any) -> list[list[Any]]:
    """Number and target of each link; target "" if it is down."""
    found: list[list[Any]] = []
    for link in range(_LINKS):
        try:
            up = nvml.nvmlDeviceGetNvLinkState(handle, link)
        except nvml.NVMLError as e:
            if getattr(e, "value", None) in (nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_INVALID_ARGUMENT):
                break  # so many there are
            raise
        found.append([link, _peer(nvml, handle, link) if up else ""])
    return found


def _peer(nvml: Any, handle: Any, link: int) -> str:
    try:
        kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
        if kind == nvml.NVML_NVLINK_DEVICE_TYPE_GPU:
            return _text(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId)
    except nvml.NVMLError as e:
        if getattr(e, "value", None) == nvml.NVML_ERROR_GPU_IS_LOST:
            raise
        return "other"
    return "switch" if kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH else "other"


def _fabric(nvml: Any, handle: Any) -> dict[str, Any]:
    """The state of the card that the fabric manager of its NVSwitches set."""
    info = nvml.c_nvmlGpuFabricInfo_v2_t()
    info.version = nvml.nvmlGpuFabricInfo_v2
    nvml.nvmlDeviceGetGpuFabricInfoV(handle, ctypes.byref(info))
    return {
        "cluster": bytes(info.clusterUuid).hex(),
        "clique": int(info.cliqueId),
        "state": int(info.state) & 0xFF,  # the library writes one byte there, nvidia-ml-py reads four
        "status": int(info.status),
        "health": int(info.healthMask),
    }


if __name__ == "__main__":
    sys.exit(main())
