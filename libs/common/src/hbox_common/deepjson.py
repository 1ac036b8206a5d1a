"""JSON of many levels, as tenants may store it."""

import sys

#: kube-apiserver refuses JSON of more than 10,000 levels (encoding/json of Go).
JSON_LEVELS = 10_000


def read_deep_json() -> None:
    """Let msgspec decode every object that an API server accepts: it counts levels of JSON against Python's recursion limit, and a tenant's PodGroup with
    1,000 of them would end each process that lists PodGroups."""
    sys.setrecursionlimit(JSON_LEVELS + 2_000)
