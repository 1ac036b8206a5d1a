"""The static memory manager of emulated kubelets: memory and huge pages of Guaranteed pods come from NUMA nodes, alone or in groups.

Follows the Go source (pkg/kubelet/cm/memorymanager/policy_static.go of Kubernetes 1.34), independently of `hbox_common.model.numa`, which schedulers use: a
block of several NUMA nodes joins them in a group until its last block is freed; a NUMA node in a group has no blocks of its own, and one with such blocks joins
no group. If no set of NUMA nodes has enough memory, the topology manager gets no hint, and the allocation fails afterwards.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

MEMORY = "memory"
HUGE = "hugepages-"

Hint = tuple[int | None, bool]


class AllocationError(Exception):
    """The kubelet's error message."""


@dataclass(slots=True)
class Cell:
    """One NUMA node: `NUMANodeState`."""

    allocatable: dict[str, int]
    free: dict[str, int]
    assignments: int = 0
    cells: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Block:
    kind: str
    size: int
    numa: tuple[int, ...]


@dataclass(slots=True)
class Reusable:
    """Of one pod: what its init containers have left to those behind them, by set of NUMA nodes."""

    by_set: dict[tuple[int, ...], dict[str, int]] = field(default_factory=dict)

    def of(self, numa: tuple[int, ...], kind: str) -> int:
        return self.by_set.get(numa, {}).get(kind, 0)


class MemoryManager:
    """`allocatable`: by NUMA node and kind, in bytes."""

    def __init__(self, allocatable: Iterable[Mapping[str, int]]) -> None:
        self.cells = [Cell(dict(own), dict(own), 0, (i,)) for i, own in enumerate(allocatable)]
        self.blocks: dict[tuple[str, str], list[Block]] = {}  #: pod and container -> what it has

    def hints(self, asked: Mapping[str, int], reusable: Reusable) -> list[Hint]:
        """Hints, equal for each kind of memory; empty: the kubelet has no hint for this container."""
        least, found = len(self.cells), list[tuple[int, ...]]()
        for width in range(1, len(self.cells) + 1):
            for numa in combinations(range(len(self.cells)), width):
                own = [self.cells[i] for i in numa]
                if any(sum(c.allocatable.get(kind, 0) for c in own) < size for kind, size in asked.items()):
                    continue
                least = min(least, width)
                if width == 1 and len(own[0].cells) > 1:
                    continue
                if width > 1 and any(c.assignments > 0 and c.cells != numa for c in own):
                    continue
                if all(sum(c.free.get(kind, 0) for c in own) + reusable.of(numa, kind) >= size for kind, size in asked.items()):
                    found.append(numa)
        return [(_bits(numa), len(numa) == least) for numa in found]

    def allocate(
        self, uid: str, container: str, asked: Mapping[str, int], hint: Hint, reusable: Reusable, *, init: bool
    ) -> None:
        """Raises AllocationError."""
        if not asked:
            return
        mask, preferred = hint
        if mask is None:
            hints = self.hints(asked, reusable)
            if not hints:
                raise AllocationError(
                    "[memorymanager] failed to get the default NUMA affinity, no NUMA nodes with enough memory is available"
                )
            mask, best = _best(hints)
            if preferred and not best:
                raise AllocationError("[memorymanager] failed to find the default preferred hint")
            preferred = best
        if any(sum(self.cells[i].free.get(kind, 0) for i in _numa(mask)) < size for kind, size in asked.items()):
            wider = [(own, good) for own, good in self.hints(asked, reusable) if own is not None and own & mask == mask]
            if not wider:
                raise AllocationError("[memorymanager] failed to find NUMA nodes to extend the current topology hint")
            mask, best = _best(wider)
            if preferred and not best:
                raise AllocationError("[memorymanager] failed to find the extended preferred hint")
        numa = _numa(mask)
        if len(numa) > 1 and any(self.cells[i].assignments and self.cells[i].cells != numa for i in numa):
            raise AllocationError("[memorymanager] preferred hint violates NUMA node allocation")
        blocks = [Block(kind, size, numa) for kind, size in asked.items()]
        for block in blocks:
            self._take(block, max(0, block.size - reusable.of(numa, block.kind)))
        self.blocks[uid, container] = blocks
        own = reusable.by_set.setdefault(numa, {})
        for block in blocks:
            left = own.get(block.kind, 0)
            own[block.kind] = max(left, block.size) if init else max(0, left - block.size)

    def _take(self, block: Block, left: int) -> None:
        for i in block.numa:
            cell = self.cells[i]
            cell.assignments += 1
            cell.cells = block.numa
            part = min(left, cell.free[block.kind])
            cell.free[block.kind] -= part
            left -= part

    def reused(self, uid: str, container: str, before: Iterable[str]) -> None:
        """What the container took over of the init containers `before` it is theirs no more."""
        for block in self.blocks.get((uid, container), ()):
            left = block.size
            for name in before:
                theirs = self.blocks.get((uid, name), [])
                for place, one in enumerate(theirs):
                    if (one.kind, one.numa) == (block.kind, block.numa):
                        part = min(left, one.size)
                        theirs[place] = Block(one.kind, one.size - part, one.numa)
                        left -= part

    def remove(self, uid: str) -> None:
        for key in [key for key in self.blocks if key[0] == uid]:
            for block in self.blocks.pop(key):
                left = block.size
                for i in block.numa:
                    cell = self.cells[i]
                    cell.assignments -= 1
                    if cell.assignments == 0:
                        cell.cells = (i,)
                    part = min(left, cell.allocatable[block.kind] - cell.free[block.kind])
                    cell.free[block.kind] += part
                    left -= part

    def checkpoint(self) -> str:
        """As `memory_manager_state`."""
        state = {
            str(i): {
                "numberOfAssignments": cell.assignments,
                "memoryMap": {
                    kind: {
                        "total": size,
                        "systemReserved": 0,
                        "allocatable": size,
                        "reserved": size - cell.free[kind],
                        "free": cell.free[kind],
                    }
                    for kind, size in cell.allocatable.items()
                },
                "cells": list(cell.cells),
            }
            for i, cell in enumerate(self.cells)
        }
        entries: dict[str, dict[str, list[dict[str, object]]]] = {}
        for (uid, container), blocks in self.blocks.items():
            entries.setdefault(uid, {})[container] = [
                {"numaAffinity": list(one.numa), "type": one.kind, "size": one.size} for one in blocks
            ]
        return json.dumps({"policyName": "Static", "machineState": state, "entries": entries, "checksum": 0})


def _best(hints: Iterable[Hint]) -> tuple[int, bool]:
    found = [(mask, preferred) for mask, preferred in hints if mask is not None]
    return min(found, key=lambda one: (not one[1], one[0].bit_count(), one[0]))


def _bits(numa: Iterable[int]) -> int:
    return sum(1 << i for i in numa)


def _numa(mask: int) -> tuple[int, ...]:
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)
