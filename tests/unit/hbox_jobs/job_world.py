"""Small words for pods and PodGroups in tests of the core."""

from hbox_jobs.core.requests import Container
from hbox_jobs.core.spec import PodSpec, shape_of
from hbox_jobs.core.views import GroupView, PodStatus, PodView

SMALL = shape_of("small", PodSpec((Container("main", {"cpu": "1"}),)))
CARD = shape_of("card", PodSpec((Container("main", {"nvidia.com/gpu": "1"}),)))
BROKEN = shape_of("broken", PodSpec((Container("main", {"nvidia.com/gpumem": "10"}),)))


def pod(name, *, rv="1", shape=SMALL, ours=True, namespace="ml", status="Pending", **fields):
    return PodView(
        uid=f"uid-{name}",
        namespace=namespace,
        name=name,
        resource_version=rv,
        created_at=fields.pop("created_at", 100.0),
        shape=shape,
        ours=ours,
        status=PodStatus(status),
        **fields,
    )


def group(name="g", *, min_member=2, uid="", **fields):
    return GroupView(
        uid=uid or f"uid-{name}",
        namespace="ml",
        name=name,
        created_at=fields.pop("created_at", 90.0),
        min_member=min_member,
        **fields,
    )
