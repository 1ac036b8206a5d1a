"""Codes of cards. Most names are HAMi's own words (sources: hami-labels)."""

from hbox_common.model.devices import VENDORS
from hbox_common.model.explanation import Outcome, Owner, Stage

from ..code import Code, Text

CODES = (
    Code(
        "CardsInUse",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("All fitting cards are in use", "所有适用的卡均在使用中"),
        Text(
            "all {total} cards that the pod may use[ on {among} nodes] are in use[ except {spare}][, by {queues}]"
            "[; the first ends about {until_at}]",
            "[{among} 个节点上 ]Pod 可用的 {total} 张卡[除 {spare} 张外]均在使用中[，占用队列：{queues}]"
            "[；最早约 {until_at} 释放]",
        ),
        Text(
            "Every card that the pod may use is held by a running pod, and the policy evicts none for this job.",
            "Pod 可用的卡全部由运行中的 Pod 占用，且策略不为此作业驱逐任何 Pod。",
        ),
        Text(
            "Wait until a job ends, or ask the queue's administrator for a higher deserved share.",
            "等待作业结束，或请队列管理员提高 deserved 份额。",
        ),
    ),
    Code(
        "CardsSpread",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("Free cards are spread over too many nodes", "空闲卡分散在过多节点上"),
        Text(
            "no node[ of {among} with too few] has {cards} cards free[; the most on one node is {largest}, {free} on all nodes together]",
            "[空闲卡不足的 {among} 个节点中]没有节点有 {cards} 张空闲卡[；单节点最多 {largest} 张，全部节点共 {free} 张]",
        ),
        Text(
            "Enough cards are free in total, but no node has enough of them for one pod.",
            "空闲卡总数足够，但没有单个节点能满足一个 Pod。",
        ),
        Text(
            "Wait until jobs end, request fewer cards per pod, or have an operator run `hbox defrag`.",
            "等待作业结束、减少每个 Pod 的卡数，或请运维执行 `hbox defrag`。",
        ),
    ),
    Code(
        "NodeInsufficientDevice",
        Stage.DEVICE,
        Outcome.CHANGE,
        Owner.USER,
        Text("The pod requests more cards than a node has", "Pod 请求的卡多于节点拥有的卡"),
        Text(
            "the pod requests {cards} cards, and the largest node[ of {among} that it could use otherwise] has {largest}",
            "Pod 请求 {cards} 张卡，[其余条件满足的 {among} 个节点中]最大的节点有 {largest} 张",
        ),
        Text(
            "One pod runs on one node, and these nodes have fewer cards than the pod requests.",
            "一个 Pod 只能在一个节点上运行，而这些节点的卡少于其请求。",
        ),
        Text(
            "Request at most as many cards as a node has, and use more pods.",
            "每个 Pod 请求的卡不超过单节点的卡数，并使用更多 Pod。",
        ),
    ),
    Code(
        "CardTypeMismatch",
        Stage.DEVICE,
        Outcome.CHANGE,
        Owner.USER,
        Text("No node has the requested card model", "没有节点具有所请求的卡型号"),
        Text(
            "no card[ of {among} nodes that it could use otherwise] is of the model {model}[; did you mean {nearest}?]"
            "[; models here: {models}]",
            "[其余条件满足的 {among} 个节点中]没有型号为 {model} 的卡[；是否想写 {nearest}？][；现有型号：{models}]",
        ),
        Text(
            f"An annotation of the pod, such as {VENDORS.default.models_annotation}, excludes the cards' models.",
            f"Pod 的注解（如 {VENDORS.default.models_annotation}）排除了这些卡的型号。",
        ),
        Text("Correct the annotation: `hbox nodes` lists models.", "修正注解：`hbox nodes` 可列出型号。"),
    ),
    Code(
        "CardNotHealth",
        Stage.DEVICE,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("Cards are not healthy", "卡不健康"),
        Text("cards on {count} nodes are not healthy[: {nodes}]", "{count} 个节点上的卡不健康[：{nodes}]"),
        Text("The device plugin or health-monitor reports the cards as unhealthy.", "设备插件或 health-monitor 报告卡不健康。"),
        Text("Have an operator repair the cards; `hbox nodes` shows the faults.", "请运维修复卡；`hbox nodes` 显示故障。"),
    ),
    Code(
        "CardUnhealthy",
        Stage.DEVICE,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("Cards are not healthy", "卡不健康"),
        Text("cards on {count} nodes are not healthy[: {nodes}]", "{count} 个节点上的卡不健康[：{nodes}]"),
        Text("The vendor's device plugin reports the cards as unhealthy.", "厂商设备插件报告卡不健康。"),
        Text("Have an operator repair the cards; `hbox nodes` shows the faults.", "请运维修复卡；`hbox nodes` 显示故障。"),
    ),
    Code(
        "CardCordoned",
        Stage.DEVICE,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("Cards are withdrawn by an operator", "卡已被运维停用"),
        Text("cards on {count} nodes are withdrawn by an operator", "{count} 个节点上的卡已被运维停用"),
        Text("An annotation of the node withdraws single cards.", "节点注解停用了个别卡。"),
        Text("Ask the operator.", "咨询运维。"),
    ),
    Code(
        "CardTimeSlicingExhausted",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("All shares of the cards are in use", "卡的共享份数已用完"),
        Text("the shared cards of {count} nodes have no share left", "{count} 个节点的共享卡没有剩余份数"),
        Text("Each card takes a fixed number of pods at a time.", "每张卡同时只接受固定数量的 Pod。"),
        Text("Wait until pods end, or have an operator raise the number of shares.", "等待 Pod 结束，或请运维提高共享份数。"),
    ),
    Code(
        "CardInsufficientMemory",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.USER,
        Text("No card has the requested slice of memory free", "没有卡有足够的空闲显存"),
        Text(
            "the pod requests {need_mib} MiB of card memory[, and the most that a card has free is {free_mib} MiB][, the largest card has {largest_mib} MiB]",
            "Pod 请求 {need_mib} MiB 显存[，单卡最多空闲 {free_mib} MiB][，最大的卡有 {largest_mib} MiB]",
        ),
        Text(
            "A slice of a card's memory is requested, and pods on the cards have taken too much of it.",
            "请求的是卡显存的一部分，而卡上的 Pod 已占用过多显存。",
        ),
        Text("Wait until pods end, or request less memory.", "等待 Pod 结束，或减少显存请求。"),
    ),
    Code(
        "CardMemoryTooLarge",
        Stage.DEVICE,
        Outcome.CHANGE,
        Owner.USER,
        Text("The pod requests more memory than any card has", "Pod 请求的显存超过任何一张卡"),
        Text(
            "the pod requests {need_mib} MiB of card memory, and the largest card[ of {among} nodes that it could use otherwise] has {largest_mib} MiB",
            "Pod 请求 {need_mib} MiB 显存，[其余条件满足的 {among} 个节点中]最大的卡只有 {largest_mib} MiB",
        ),
        Text("A slice is part of one card, and no card is that large.", "切片只能位于一张卡上，而没有这么大的卡。"),
        Text("Request at most what the largest card has.", "请求不超过最大的卡的显存。"),
    ),
    Code(
        "CardInsufficientCore",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.USER,
        Text("No card has the requested share of compute free", "没有卡有足够的空闲算力"),
        Text("no card on {count} nodes has the requested share of compute free", "{count} 个节点上没有卡有所请求的空闲算力"),
        Text(
            "A share of a card's compute is requested, and pods on the cards have taken too much of it.",
            "请求的是卡算力的一部分，而卡上的 Pod 已占用过多算力。",
        ),
        Text("Wait until pods end, or request a smaller share.", "等待 Pod 结束，或减少算力请求。"),
    ),
    Code(
        "ExclusiveDeviceAllocateConflict",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.USER,
        Text("A whole card is requested, and pods share the cards", "请求整卡，但卡上有其他 Pod"),
        Text(
            "a whole card is requested, and pods are on the cards of {count} nodes", "请求整卡，但 {count} 个节点的卡上有 Pod"
        ),
        Text(
            "A pod that requests all compute of a card shares it with no other pod.", "请求整卡算力的 Pod 不与其他 Pod 共享。"
        ),
        Text("Wait until pods end, or request a part of a card.", "等待 Pod 结束，或请求卡的一部分。"),
    ),
    Code(
        "CardComputeUnitsExhausted",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("All compute of the cards is promised", "卡的算力已全部分配"),
        Text(
            "all compute of the cards on {count} nodes is promised to other pods", "{count} 个节点的卡算力已全部分配给其他 Pod"
        ),
        Text("Other pods have requested all compute units of the cards.", "其他 Pod 已请求卡的全部算力单元。"),
        Text("Wait until pods end.", "等待 Pod 结束。"),
    ),
    Code(
        "AllocatedCardsInsufficientRequest",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("Some cards fit, fewer than requested", "有合适的卡，但少于请求数"),
        Text(
            "{count} nodes have fewer fitting cards than the pod requests[ ({cards})]",
            "{count} 个节点上合适的卡少于 Pod 的请求数[（{cards}）]",
        ),
        Text("Other pods hold the rest of the cards of the node.", "节点其余的卡被其他 Pod 占用。"),
        Text("Wait until pods end, or request fewer cards per pod.", "等待 Pod 结束，或减少每个 Pod 的卡数。"),
    ),
    Code(
        "CardLinkTooSlow",
        Stage.DEVICE,
        Outcome.CHANGE,
        Owner.USER,
        Text("The links between the cards are too slow", "卡间互连过慢"),
        Text("the cards of {count} nodes have no link as fast as the pod needs", "{count} 个节点的卡间互连达不到要求"),
        Text(
            "The pod or gang uses several cards, and its annotation requires a fast link between them.",
            "Pod 或组使用多张卡，其注解要求卡间快速互连。",
        ),
        Text("Allow a slower link, or other card models.", "允许较慢的互连，或其他型号。"),
    ),
    Code(
        "CardUuidMismatch",
        Stage.DEVICE,
        Outcome.CHANGE,
        Owner.USER,
        Text("The cards named by UUID are not there", "按 UUID 指定的卡不在此处"),
        Text("{count} nodes do not have the cards that the pod names by UUID", "{count} 个节点没有 Pod 按 UUID 指定的卡"),
        Text("An annotation of the pod names single cards.", "Pod 的注解指定了具体的卡。"),
        Text("Correct or remove the annotation.", "修正或删除该注解。"),
    ),
    Code(
        "ModeNotFit",
        Stage.DEVICE,
        Outcome.CHANGE,
        Owner.USER,
        Text("The nodes share cards in another way", "节点的共享方式不同"),
        Text("{count} nodes do not share their cards in the requested way", "{count} 个节点不以所请求的方式共享卡"),
        Text(
            "The pod names a mode (such as mig or hami-core) that these nodes do not have.",
            "Pod 指定的模式（如 mig、hami-core）这些节点没有。",
        ),
        Text("Name another mode, or have an operator change the nodes.", "改用其他模式，或请运维调整节点。"),
    ),
    Code(
        "CardMigTopologyInfeasible",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.USER,
        Text("No card can be partitioned as requested", "没有卡可按请求切分"),
        Text("no card on {count} nodes has room for the requested partition", "{count} 个节点上没有卡可容纳所请求的切分"),
        Text("The existing partitions leave no place for a further one of this size.", "已有切分没有留下该大小的位置。"),
        Text("Wait until pods end, or request a smaller partition.", "等待 Pod 结束，或请求更小的切分。"),
    ),
    Code(
        "CardQosPolicyMismatch",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.USER,
        Text("The cards have another quality-of-service policy", "卡的 QoS 策略不同"),
        Text(
            "the cards of {count} nodes have another QoS policy than the pod requests",
            "{count} 个节点的卡的 QoS 策略与请求不同",
        ),
        Text(
            "Cards in use by pods of one policy take no pods of another one.", "已被某策略 Pod 使用的卡不接受其他策略的 Pod。"
        ),
        Text("Request the policy of the cards, or wait until they are free.", "请求与卡相同的策略，或等待其空闲。"),
    ),
    Code(
        "CardAppClassMismatch",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.USER,
        Text("The cards are for another application class", "卡供其他应用类别使用"),
        Text("the cards of {count} nodes are for another application class", "{count} 个节点的卡供其他应用类别使用"),
        Text("Cards in use by one application class take no pods of another.", "已被某应用类别使用的卡不接受其他类别。"),
        Text("Request the class of the cards, or wait until they are free.", "请求与卡相同的类别，或等待其空闲。"),
    ),
    Code(
        "CardNotFoundCustomFilterRule",
        Stage.DEVICE,
        Outcome.CHANGE,
        Owner.USER,
        Text("A vendor rule excludes the cards", "厂商规则排除了这些卡"),
        Text("a rule of the vendor excludes the cards of {count} nodes", "厂商规则排除了 {count} 个节点的卡"),
        Text(
            "Rules of the vendor's scheduler, such as the number of cards that may be used together, exclude the request.",
            "厂商调度规则（例如可一起使用的卡数）排除了该请求。",
        ),
        Text("Request a number of cards that the vendor allows (docs/devices).", "请求厂商允许的卡数（见 docs/devices）。"),
    ),
    Code(
        "NumaNotFit",
        Stage.DEVICE,
        Outcome.WAIT,
        Owner.USER,
        Text("Cards of one NUMA node are too few", "同一 NUMA 节点的卡不足"),
        Text("{count} nodes have too few free cards in one NUMA node", "{count} 个节点在同一 NUMA 节点内空闲卡不足"),
        Text("The pod's annotation requires all cards of one NUMA node.", "Pod 的注解要求所有卡在同一 NUMA 节点。"),
        Text("Wait until pods end, or drop the annotation.", "等待 Pod 结束，或去掉该注解。"),
    ),
)
