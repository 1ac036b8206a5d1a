"""Words of the renderer that belong to no code, in both languages."""

from collections.abc import Mapping

from hbox_common.model.explanation import ChangeKind, Outcome, Owner, Stage

from .code import Text

OUTCOMES: Mapping[Outcome, Text] = {
    Outcome.WAIT: Text("wait", "等待"),
    Outcome.CHANGE: Text("change", "需修改"),
    Outcome.ESCALATE: Text("escalate", "需上报"),
}

OWNERS: Mapping[Owner, Text] = {
    Owner.USER: Text("you", "用户"),
    Owner.QUEUE_ADMIN: Text("queue administrator", "队列管理员"),
    Owner.OPERATOR: Text("operator", "运维"),
    Owner.SYSTEM: Text("HBox, by itself", "HBox 自动处理"),
}

STAGES: Mapping[Stage, Text] = {
    Stage.SPEC: Text("spec", "规格"),
    Stage.HOLD: Text("hold", "挂起"),
    Stage.QUOTA: Text("quota", "配额"),
    Stage.ORDER: Text("order", "次序"),
    Stage.GANG: Text("gang", "成组"),
    Stage.TOPOLOGY: Text("topology", "拓扑"),
    Stage.NODE: Text("node", "节点"),
    Stage.DEVICE: Text("device", "设备"),
    Stage.RECLAIM: Text("reclaim", "回收"),
    Stage.BIND: Text("bind", "绑定"),
    Stage.EXTERNAL: Text("external", "外部"),
}

#: What each kind of change alters, in the order of preference: the first text whose facts are known. Placeholders as in codes; `of`: the present value.
CHANGES: Mapping[ChangeKind, tuple[Text, ...]] = {
    ChangeKind.PODS: (Text("{pods} pods[ instead of {of}]", "{pods} 个 Pod[（现为 {of}）]"),),
    ChangeKind.CARDS: (Text("{cards} cards per pod[ instead of {of}]", "每个 Pod {cards} 张卡[（现为 {of}）]"),),
    ChangeKind.RESOURCES: (
        Text("{resource} {amount} per pod[ instead of {of}]", "每个 Pod {resource} {amount}[（现为 {of}）]"),
    ),
    ChangeKind.MODEL: (Text("card model {model}[ instead of {of}]", "卡型号 {model}[（现为 {of}）]"),),
    ChangeKind.TIER: (
        Text("topology tier {tier}[ instead of {of}]", "拓扑层级 {tier}[（现为 {of}）]"),
        Text("one domain preferred instead of required", "单一域由必须改为偏好"),
    ),
    ChangeKind.SELECTOR: (
        Text("node label {key}={value}[ instead of {of}]", "节点标签 {key}={value}[（现为 {of}）]"),
        Text("no requirement on {key}", "不要求 {key}"),
    ),
    ChangeKind.QUEUE: (Text("queue {queue}[ instead of {of}]", "队列 {queue}[（现为 {of}）]"),),
    ChangeKind.LIMIT: (
        Text(
            "{rule} {resource}={amount} of queue {queue}[ instead of {of}]",
            "队列 {queue} 的 {rule} {resource}={amount}[（现为 {of}）]",
        ),
    ),
    ChangeKind.PRIORITY: (Text("PriorityClass {class}[ instead of {of}]", "优先级类 {class}[（现为 {of}）]"),),
    ChangeKind.WALLTIME: (Text("walltime {walltime}[ instead of {of}]", "运行时长 {walltime}[（现为 {of}）]"),),
    ChangeKind.NODES: (
        Text("{count} of {among} nodes back in service: {nodes}", "恢复以下 {among} 个节点中的 {count} 个：{nodes}"),
    ),
    ChangeKind.MOVES: (Text("move {count} running pods[ to free {nodes}]", "迁移 {count} 个运行中的 Pod[，以腾出 {nodes}]"),),
}

#: Between changes that have to be made together.
AND = Text(" and ", "，并且 ")

#: Names of units of `need` and `have`; others are shown by their own names.
UNITS: Mapping[str, Text] = {
    "cards": Text("cards", "张卡"),
    "pods": Text("pods", "个 Pod"),
    "nodes": Text("nodes", "个节点"),
    "cpu": Text("CPUs", "个 CPU"),
    "memory_mib": Text("MiB of memory", "MiB 内存"),
    "card_memory_mib": Text("MiB of card memory", "MiB 显存"),
}
#: Those whose names differ for an amount of one.
ONE: Mapping[str, Text] = {
    "cards": Text("card", "张卡"),
    "pods": Text("pod", "个 Pod"),
    "nodes": Text("node", "个节点"),
    "cpu": Text("CPU", "个 CPU"),
}

VERDICT = Text("VERDICT", "结论")
BLOCKED = Text("BLOCKED", "原因")
STAGES_HEAD = Text("STAGES", "阶段")
NOTES = Text("NOTES", "备注")
NODES_HEAD = Text("NODES", "节点")
START = Text("START", "启动")
WAITED = Text("WAITED", "等待构成")
FIX = Text("FIX", "处理")
TRACE = Text("TRACE", "追踪")
SMALLEST_CHANGE = Text(
    "SMALLEST CHANGE (any one of these, examined at this state, not reserved)", "最小改动（任选其一；按当前状态验证，不作预留）"
)
ACTS = Text("who acts: {}", "处理者：{}")
WAITING_FOR = Text("waiting {}", "已等待 {}")
POSITION = Text("position {} of {}", "队列位置 {} / {}")
NEED_HAVE = Text("needs {}; the most that can be had is {}", "需要 {}；最多可得 {}")
NEED = Text("needs {}", "需要 {}")
AS_OF = Text("as of {}", "截至 {}")
REVISION = Text(", revision {}", "，修订 {}")
OK = Text("ok", "通过")
NODE_SUM = Text("{} nodes = {} with room", "{} 个节点 = {} 个有空位")
ONE_NODE_SUM = Text("{} node = {} with room", "{} 个节点 = {} 个有空位")
ONLY = Text("alone in the way: {}", "仅此一项阻碍：{}")
INTERVAL = Text("{} to {} (p50-p90, by {})", "{} 至 {}（p50-p90，方法：{}）")
DRIVER = Text("depends on {}", "取决于 {}")
