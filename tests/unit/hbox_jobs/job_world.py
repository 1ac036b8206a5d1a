"""Small words for pods and PodGroups in tests of the core."""

from typing import Any

from hbox_common.model import PodUid
from hbox_jobs.core.requests import Container
from hbox_jobs.core.spec import PodSpec, shape_of
from hbox_jobs.core.views import GroupView, PodStatus, PodView

SMALL = shape_of("small", PodSpec((Container("main", {"cpu": "1"}),)))
CARD = shape_of("card", PodSpec((Container("main", {"nvidia.com/gpu": "1"}),)))
BROKEN = shape_of("broken", PodSpec((Container("main", {"nvidia.com/gpumem": "10"}),)))


def pod(
    name: str,
    *,
    rv: Any = "1",
    shape: Any = SMALL,
    ours: Any = True,
    namespace: Any = "ml",
    status: Any = "Pending",
    **fields: Any,
) -> PodView:
    return PodView(
        uid=PodUid(f"uid-{name}"),
        namespace=namespace,
        name=name,
        resource_version=rv,
        created_at=fields.pop("created_at", 100.0),
        shape=shape,
        ours=ours,
        status=PodStatus(status),
        **fields,
    )


def group(name: str = "g", *, min_member: Any = 2, uid: Any = "", **fields: Any) -> GroupView:
    return GroupView(
        uid=uid or f"uid-{name}",
        namespace="ml",
        name=name,
        created_at=fields.pop("created_at", 90.0),
        min_member=min_member,
        **fields,
    )
