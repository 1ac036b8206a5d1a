"""Codes of gangs and of their domains in the fabric."""

from hbox_common.model.explanation import Outcome, Owner, Stage

from ..code import Code, Text

CODES = (
    Code(
        "GangIncomplete",
        Stage.GANG,
        Outcome.CHANGE,
        Owner.USER,
        Text("Fewer pods exist than the gang needs", "已有的 Pod 少于组的最小数量"),
        Text("the gang needs {pods} pods and {count} exist", "该组需要 {pods} 个 Pod，现有 {count} 个"),
        Text(
            "The controller has not created all pods, or minMember is larger than the job.",
            "控制器未创建全部 Pod，或 minMember 大于作业的 Pod 数。",
        ),
        Text("Create the missing pods, or lower minMember of the PodGroup.", "创建缺少的 Pod，或降低 PodGroup 的 minMember。"),
    ),
    Code(
        "GangPartlyFits",
        Stage.GANG,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("Only part of the gang fits now", "目前只放得下组的一部分"),
        Text(
            "{fit} of {pods} pods that have to start together fit now[, {most} would on an empty cluster]",
            "须同时启动的 {pods} 个 Pod 中目前放得下 {fit} 个[，空集群可放 {most} 个]",
        ),
        Text(
            "Nodes have room for some of the pods that have to start together, not for all of them.",
            "节点只能容纳须同时启动的 Pod 中的一部分。",
        ),
        Text("Wait until jobs end, or lower minMember.", "等待作业结束，或降低 minMember。"),
    ),
    Code(
        "GangTooLarge",
        Stage.GANG,
        Outcome.CHANGE,
        Owner.USER,
        Text("The gang is larger than the cluster", "组的规模超过集群"),
        Text(
            "{pods} pods have to start together, and at most {most} fit even if nothing else runs",
            "{pods} 个 Pod 须同时启动，即使没有其他作业也最多放得下 {most} 个",
        ),
        Text(
            "The nodes that the pods may use hold fewer such pods than minMember, even when they are empty.",
            "Pod 可用的节点即使为空也放不下 minMember 个此类 Pod。",
        ),
        Text(
            "Lower minMember and the number of pods, or request less per pod.",
            "降低 minMember 和 Pod 数量，或减少每个 Pod 的请求。",
        ),
    ),
    Code(
        "GangKeepsApart",
        Stage.GANG,
        Outcome.CHANGE,
        Owner.USER,
        Text("Pods of the gang exclude each other from too many nodes", "组内 Pod 相互排斥，可用节点不足"),
        Text(
            "{pods} pods have to start together, and by their own affinity, spread constraints or volumes at most {most} fit even if nothing else runs",
            "{pods} 个 Pod 须同时启动，但由于自身的亲和性、分布约束或存储卷，即使没有其他作业也最多放得下 {most} 个",
        ),
        Text(
            "Pods of the gang keep apart from each other, or have to be together, and there are too few nodes or domains for all of them.",
            "组内 Pod 要求相互分开或聚在一起，而节点或域的数量不够。",
        ),
        Text(
            "Lower minMember, or prefer the constraint instead of requiring it.",
            "降低 minMember，或将约束由强制改为偏好。",
        ),
    ),
    Code(
        "TopologyFull",
        Stage.TOPOLOGY,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("No single domain of the fabric has room for the gang", "没有任何一个网络域能容纳该组"),
        Text(
            "no domain of tier {tier} or lower has room for {pods} pods[; the best, {domain}, has room for {room}]",
            "第 {tier} 层及以下没有能容纳 {pods} 个 Pod 的域[；最好的 {domain} 可容纳 {room} 个]",
        ),
        Text(
            "The gang has to be in one domain, and the free places are spread over several.",
            "该组必须位于一个域内，而空闲位置分散在多个域中。",
        ),
        Text(
            "Wait until jobs in a domain end, allow a higher tier, or prefer the domain instead of requiring it (mode soft).",
            "等待某个域中的作业结束、允许更高层级，或将要求改为偏好（mode soft）。",
        ),
    ),
    Code(
        "TopologyTooSmall",
        Stage.TOPOLOGY,
        Outcome.CHANGE,
        Owner.USER,
        Text("No domain of the allowed tier can ever hold the gang", "允许层级的任何域都容纳不下该组"),
        Text(
            "no domain of tier {tier} or lower holds {pods} pods even when empty[; the largest, {domain}, holds {room}]",
            "第 {tier} 层及以下的域即使为空也放不下 {pods} 个 Pod[；最大的 {domain} 可放 {room} 个]",
        ),
        Text(
            "The gang has to be in one domain, and the largest one is too small for it.",
            "该组必须位于一个域内，而最大的域也太小。",
        ),
        Text(
            "Allow a higher tier (highestTierAllowed), use mode soft, or lower minMember.",
            "允许更高层级（highestTierAllowed）、使用 mode soft，或降低 minMember。",
        ),
    ),
    Code(
        "TopologyUnknown",
        Stage.TOPOLOGY,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("The fabric is not known", "网络拓扑未知"),
        Text(
            "{pods} pods have to be in one domain of the fabric, and there are no HyperNodes",
            "{pods} 个 Pod 须位于同一网络域，但没有 HyperNode",
        ),
        Text(
            "topology-collector has found no fabric, and no HyperNodes were created by hand.",
            "topology-collector 未发现网络拓扑，也没有手工创建的 HyperNode。",
        ),
        Text(
            "Have an operator configure topology discovery (guide topology), or drop the constraint.",
            "请运维配置拓扑发现（参见拓扑指南），或去掉约束。",
        ),
    ),
    Code(
        "TopologyOld",
        Stage.TOPOLOGY,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("The known fabric is out of date", "已知的网络拓扑已过期"),
        Text(
            "{pods} pods have to be in one domain of the fabric, and its description is out of date[: {detail}]",
            "{pods} 个 Pod 须位于同一网络域，但拓扑描述已过期[：{detail}]",
        ),
        Text("The source of the fabric's description has not reported for too long.", "网络拓扑的数据来源已太久没有上报。"),
        Text("Have an operator look at topology-collector.", "请运维检查 topology-collector。"),
    ),
)
