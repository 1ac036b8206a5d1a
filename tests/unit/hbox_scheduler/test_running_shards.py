"""Pods on nodes that this scheduler does not have, as those of other shards: they count in their queues, and no session has members for them."""

from hbox_common.model import Claim, ClaimId, ClaimState, JobId, NodeName, PlanId, PodUid, QueueName
from hbox_common.model.devices.nvidia import GPU
from hbox_common.model.resources import CPU, PODS
from hbox_scheduler.core.cluster import Booking, Bookings, Columns
from hbox_scheduler.core.cluster.tasks import Tasks
from hbox_scheduler.core.placement.running import RunningJobs
from hbox_scheduler.core.queueing.groups import Groups
from hbox_scheduler.core.simulate import node

HERE, ELSEWHERE = JobId("pod-1"), JobId("pod-2")


def a_booking(number: int, where: str) -> Booking:
    uid = f"pod-{number}"
    claim = Claim(
        ClaimId(uid), PodUid(uid), "team", uid, JobId(uid), PlanId("p"), QueueName("q"), 0, NodeName(where),
        {CPU: 1000, GPU: 1, PODS: 1}, (), ClaimState.POSTED, claimed_at=1.0,
    )  # fmt: skip
    return Booking.of(claim, None)


def test_pods_of_an_unknown_node_are_members_while_it_is_known() -> None:
    columns = Columns()
    bookings, groups = Bookings(columns), Groups(columns)
    running = RunningJobs(columns, bookings, Tasks(columns), {}, groups)
    columns.put_node(node("here", cards=8))
    bookings.put(a_booking(1, "here"))
    bookings.put(a_booking(2, "elsewhere"))
    assert running.current().jobs == {HERE}
    assert list(running.lend_with([PodUid("pod-2")])) == []
    assert bookings.queue_used[QueueName("q")][GPU] == 2

    columns.put_node(node("elsewhere", cards=8))
    bookings.rebuild(NodeName("elsewhere"))
    assert running.current().jobs == {HERE, ELSEWHERE}

    columns.drop_node(NodeName("elsewhere"))
    bookings.moved(NodeName("elsewhere"))
    assert running.current().jobs == {HERE}
