"""`hbox-nvml-events`: waits for the events of NVIDIA's management library until it is ended. Prints lines of JSON, each below 512 bytes:

    {"ready": {"cards": 8, "refused": 0}}                                         events of so many cards are received from now on
    {"beat": 1}                                                                   no event within WAIT_MS; a call into the driver returned
    {"event": {"type": 8, "data": 79, "uuid": "GPU-..", "pci": "00000000:18:00.0", "gi": null, "ci": null}}
    {"problem": "..."}                                                            why it ends

It is a program separate from `nvml_reader`, because a waiting call blocks the library. It has all cards open. SIGTERM ends it at once; node-remedy sends it
before a reset. If the agent ends, printing the next line fails, which ends the program.
"""

import ctypes
import json
import sys
from typing import Any

try:
    import pynvml
except ImportError:
    pynvml = None

#: A line is printed at least so often, unless a call hangs.
WAIT_MS = 5000
_CARDS = 64
#: Events by NVML's bits: errors of memory (1 corrected, 2 uncorrected), 8 XID, 0x200 many corrected errors, 0x400 and 0x800 rows retired or not, 0x1000 and
#: 0x2000 poison, 0x4000 card unavailable, 0x8000 recovery action. Clocks, power states and MIG changes are no faults.
WANTED = 0x1 | 0x2 | 0x8 | 0x200 | 0x400 | 0x800 | 0x1000 | 0x2000 | 0x4000 | 0x8000
#: What every driver has that has events at all.
_BASIC = 0x1 | 0x2 | 0x8
#: GPU and compute instance of an event that is about a whole card.
_NO_INSTANCE = 0xFFFFFFFF


def main() -> int:
    """0: no card supports events; 1: a problem. Else it does not end."""
    if pynvml is None:
        return _end("nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
        events = pynvml.nvmlEventSetCreate()
        cards, refused = _registered(events)
        _print(ready={"cards": len(cards), "refused": refused})
        return _wait(events, cards) if cards else 0
    except pynvml.NVMLError as e:
        return _end(f"NVML's events are not available: {_error_text(e)}")


def _registered(events: Any) -> tuple[dict[int, tuple[str, str]], int]:
    """Cards whose events are received: uuid and address by handle, since a lost card does not answer. And how many support none."""
    cards: dict[int, tuple[str, str]] = {}
    refused = 0
    for index in range(min(pynvml.nvmlDeviceGetCount(), _CARDS)):
        try:
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            try:
                types = pynvml.nvmlDeviceGetSupportedEventTypes(handle) & WANTED
            except pynvml.NVMLError as e:
                if e.value == pynvml.NVML_ERROR_NOT_SUPPORTED:
                    raise
                types = _BASIC
            if not types:
                refused += 1
                continue
            names = _text(pynvml.nvmlDeviceGetUUID(handle)), _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)
            pynvml.nvmlDeviceRegisterEvents(handle, types, events)
            cards[_pointer(handle)] = names
        except pynvml.NVMLError:  # such as NOT_SUPPORTED in a guest, or of a card that is lost already
            refused += 1
    return cards, refused


def _wait(events: Any, cards: dict[int, tuple[str, str]]) -> int:
    beats = 0
    while True:
        try:
            data = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
        except pynvml.NVMLError as e:
            if e.value != pynvml.NVML_ERROR_TIMEOUT:  # of a lost card each further call would return at once
                return _end(f"NVML's events ended: {_error_text(e)}")
            beats += 1
            _print(beat=beats)
            continue
        uuid, pci = cards.get(_pointer(data.device), ("", ""))
        instances = [None if one == _NO_INSTANCE else int(one) for one in (data.gpuInstanceId, data.computeInstanceId)]
        found = {"type": int(data.eventType), "data": int(data.eventData), "uuid": uuid, "pci": pci}
        _print(event=found | dict(zip(("gi", "ci"), instances, strict=True)))


def _pointer(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0


def _text(value: Any) -> str:
    return (value.decode(errors="replace") if isinstance(value, bytes) else str(value))[:96]


def _error_text(error: Any) -> str:
    try:
        return f"{error} (code {error.value})"[:200]
    except (UnicodeDecodeError, TypeError, ValueError):  # the words are the library's own
        return f"code {error.value}"


def _print(**fields: Any) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _end(problem: str) -> int:
    _print(problem=problem)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:  # the agent ended
        sys.stderr.close()
        sys.exit(1)
