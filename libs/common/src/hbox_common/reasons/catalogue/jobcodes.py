"""Codes of jobs that are held back for what they are, or for what they depend on."""

from hbox_common.model.explanation import Outcome, Owner, Stage

from ..code import Code, Text

CODES = (
    Code(
        "InvalidSpec",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.USER,
        Text("The job cannot be scheduled as written", "作业的写法无法调度"),
        Text("it cannot be scheduled as written[: {detail}]", "按当前写法无法调度[：{detail}]"),
        Text(
            "A request, an annotation or a field of the pod or its PodGroup has a value that HBox cannot read.",
            "Pod 或其 PodGroup 的请求、注解或字段含有 HBox 无法识别的值。",
        ),
        Text("Correct the field that the text names, and create the pods again.", "修正文中指出的字段，然后重新创建 Pod。"),
    ),
    Code(
        "PodGroupNotFound",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.USER,
        Text("The pod names a PodGroup that does not exist", "Pod 指定的 PodGroup 不存在"),
        Text("PodGroup {group} does not exist[; did you mean {nearest}?]", "PodGroup {group} 不存在[；是否想写 {nearest}？]"),
        Text(
            "The annotation scheduling.k8s.io/group-name of the pods names a PodGroup that is not in their namespace.",
            "Pod 的注解 scheduling.k8s.io/group-name 指定的 PodGroup 不在其命名空间中。",
        ),
        Text("Create the PodGroup, or remove the annotation.", "创建该 PodGroup，或删除该注解。"),
    ),
    Code(
        "PriorityClassNotFound",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.USER,
        Text("The PriorityClass does not exist", "PriorityClass 不存在"),
        Text(
            "PriorityClass {name} does not exist[; did you mean {nearest}?]",
            "PriorityClass {name} 不存在[；是否想写 {nearest}？]",
        ),
        Text(
            "The PodGroup names a PriorityClass that the cluster does not have.",
            "PodGroup 指定的 PriorityClass 在集群中不存在。",
        ),
        Text(
            "Create the class, or name another one: `kubectl get priorityclasses` lists them.",
            "创建该类，或改用其他类：`kubectl get priorityclasses` 可列出全部。",
        ),
    ),
    Code(
        "TopologyInvalid",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.USER,
        Text("The topology constraint cannot be read", "拓扑约束无法识别"),
        Text("its topology constraint cannot be read[: {detail}]", "拓扑约束无法识别[：{detail}]"),
        Text(
            "The PodGroup's networkTopology or its annotation has a value that is not allowed.",
            "PodGroup 的 networkTopology 或对应注解的值不合法。",
        ),
        Text(
            "Correct the constraint: `kubectl explain podgroup.spec.networkTopology` describes it.",
            "修正约束：`kubectl explain podgroup.spec.networkTopology` 有说明。",
        ),
    ),
    Code(
        "GangNotRead",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.USER,
        Text("The pod's gang label is not read, so the pod is placed alone", "未识别 Pod 的成组标签，Pod 被单独放置"),
        Text("label {label} names a gang that HBox does not read", "标签 {label} 指定的组 HBox 无法识别"),
        Text("The pod names its gang by a label of another scheduler.", "Pod 通过其他调度器的标签指定所属的组。"),
        Text(
            "Name a PodGroup by the annotation scheduling.k8s.io/group-name.",
            "用注解 scheduling.k8s.io/group-name 指定 PodGroup。",
        ),
    ),
    Code(
        "NoBackfill",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.OPERATOR,
        Text("Pods that request nothing are not placed by this policy", "当前策略不放置无任何请求的 Pod"),
        Text("the pod requests nothing, and the policy has no action backfill", "Pod 没有任何请求，而策略中没有 backfill 动作"),
        Text(
            "Pods without requests are placed by the action `backfill` only, and the policy's list of actions does not have it.",
            "没有请求的 Pod 只由 `backfill` 动作放置，而策略的动作列表中没有它。",
        ),
        Text(
            "Have the pod request CPU or memory, or add `backfill` to the policy's actions.",
            "让 Pod 请求 CPU 或内存，或在策略动作中加入 `backfill`。",
        ),
    ),
    Code(
        "JobTooLarge",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.USER,
        Text("The job has too many different pods for one message", "作业中不同的 Pod 过多，超出单条消息的容量"),
        Text("its pods differ too much to be planned together[: {detail}]", "其 Pod 差异过大，无法一起规划[：{detail}]"),
        Text(
            "Pods of many different shapes, or with very long constraints, exceed the largest message between the services.",
            "Pod 形状过多或约束过长，超出服务间消息的最大长度。",
        ),
        Text("Make the pods alike, or split the job.", "让 Pod 保持一致，或拆分作业。"),
    ),
    Code(
        "NamespaceTerminating",
        Stage.SPEC,
        Outcome.CHANGE,
        Owner.USER,
        Text("The namespace is being deleted", "命名空间正在删除"),
        Text("namespace {namespace} is being deleted", "命名空间 {namespace} 正在删除"),
        Text(
            "The API server binds no pod in a namespace that is being deleted.",
            "API 服务器不会在正在删除的命名空间中绑定 Pod。",
        ),
        Text("Create the job in another namespace.", "在其他命名空间中创建作业。"),
    ),
    Code(
        "SchedulingGated",
        Stage.HOLD,
        Outcome.WAIT,
        Owner.USER,
        Text("Pods have scheduling gates", "Pod 设有调度门"),
        Text(
            "{count} pods have scheduling gates, and the gang lacks {short} pods without them",
            "{count} 个 Pod 设有调度门，该组缺少 {short} 个没有调度门的 Pod",
        ),
        Text(
            "A controller or the user has set spec.schedulingGates; the pods are placed after all gates are removed.",
            "控制器或用户设置了 spec.schedulingGates；全部移除后才会放置 Pod。",
        ),
        Text(
            "Find the controller that set the gates (`kubectl get pod NAME -o yaml`), or remove them.",
            "找到设置调度门的控制器（`kubectl get pod NAME -o yaml`），或将其移除。",
        ),
    ),
    Code(
        "QueueGateNotRemoved",
        Stage.HOLD,
        Outcome.CHANGE,
        Owner.USER,
        Text("Pods have the gate that only Volcano's scheduler removes", "Pod 设有只有 Volcano 调度器才会移除的调度门"),
        Text(
            "{count} pods have a gate that only Volcano's scheduler removes",
            "{count} 个 Pod 设有只有 Volcano 调度器才会移除的调度门",
        ),
        Text(
            "The pods were created with Volcano's annotation for queue admission, and HBox schedules them, so no controller removes the gate.",
            "Pod 创建时带有 Volcano 队列准入注解，而由 HBox 调度，因此没有控制器移除该调度门。",
        ),
        Text("Create the pods again without that annotation.", "去掉该注解后重新创建 Pod。"),
    ),
    Code(
        "NotEnqueued",
        Stage.HOLD,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("The PodGroup is not admitted yet", "PodGroup 尚未准入"),
        Text("its PodGroup is not admitted yet[: {detail}]", "其 PodGroup 尚未准入[：{detail}]"),
        Text(
            "The policy has the action `enqueue`, and one of its plugins does not admit the PodGroup's minimum resources now.",
            "策略包含 `enqueue` 动作，其中某个插件目前不准入该 PodGroup 的最小资源。",
        ),
        Text(
            "Wait until running jobs of the queue end, or lower spec.minResources of the PodGroup.",
            "等待队列中的作业结束，或降低 PodGroup 的 spec.minResources。",
        ),
    ),
    Code(
        "NamespaceFull",
        Stage.HOLD,
        Outcome.WAIT,
        Owner.USER,
        Text("The namespace has too many waiting jobs", "命名空间中等待的作业过多"),
        Text(
            "namespace {namespace} has {count} waiting jobs, the most that it may have; this one follows when others start or leave",
            "命名空间 {namespace} 已有 {count} 个等待作业（上限）；其他作业启动或离开后轮到它",
        ),
        Text(
            "HBOX_PENDING_PER_NAMESPACE limits the jobs of one namespace that are planned at a time, the most important first.",
            "HBOX_PENDING_PER_NAMESPACE 限制每个命名空间同时参与规划的作业数，重要者优先。",
        ),
        Text(
            "Delete waiting jobs that need not run, or raise this job's priority.",
            "删除不必运行的等待作业，或提高该作业的优先级。",
        ),
    ),
    Code(
        "QueueClosed",
        Stage.HOLD,
        Outcome.CHANGE,
        Owner.QUEUE_ADMIN,
        Text("The queue is not open", "队列未开放"),
        Text("queue {queue} is not open[; its state is {state}]", "队列 {queue} 未开放[；状态为 {state}]"),
        Text(
            "An administrator closed the queue; it starts no jobs until it is opened again.",
            "管理员关闭了该队列；重新开放前不会启动作业。",
        ),
        Text(
            "Open it with `hbox queue open QUEUE`, or use another queue.", "用 `hbox queue open QUEUE` 开放，或使用其他队列。"
        ),
    ),
    Code(
        "EvictionBlocked",
        Stage.HOLD,
        Outcome.CHANGE,
        Owner.USER,
        Text("The rest of an incomplete gang may not be evicted", "未完整启动的组的剩余 Pod 不允许被驱逐"),
        Text(
            "{count} pods of the incomplete gang may not be evicted[: {detail}]",
            "未完整启动的组中有 {count} 个 Pod 不允许被驱逐[：{detail}]",
        ),
        Text(
            "A PodDisruptionBudget forbids the eviction of pods that hold places without the rest of their gang.",
            "PodDisruptionBudget 禁止驱逐这些占用位置但组不完整的 Pod。",
        ),
        Text("Raise the budget's maxUnavailable, or delete the pods.", "提高该预算的 maxUnavailable，或删除这些 Pod。"),
    ),
    Code(
        "NotTriedYet",
        Stage.ORDER,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("The scheduler has not tried the job yet", "调度器尚未尝试该作业"),
        Text(
            "the scheduler has not tried it yet[; {ahead} jobs of its queue come before it]",
            "调度器尚未尝试它[；其队列中前面还有 {ahead} 个作业]",
        ),
        Text("The job is new, or the scheduler has just started.", "作业是新的，或调度器刚启动。"),
        Text(
            "Wait a few seconds; an operator sees by `hbox check` whether the scheduler works.",
            "等待几秒；运维可用 `hbox check` 查看调度器是否正常。",
        ),
    ),
    Code(
        "ReservedForLargeJob",
        Stage.ORDER,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("Nodes are reserved for a large gang", "节点已为大型组预留"),
        Text(
            "{count} nodes are reserved for a gang that waits for long[: {detail}]",
            "{count} 个节点已为久等的组预留[：{detail}]",
        ),
        Text(
            "A gang that needs whole nodes would starve if smaller jobs kept taking them, so nodes are set aside for it.",
            "需要整节点的组会被不断到来的小作业饿死，因此为其预留节点。",
        ),
        Text(
            "Declare the running time by the annotation hbox.io/walltime: jobs that end before the expected start may run there.",
            "用注解 hbox.io/walltime 声明运行时长：在预计启动前结束的作业可在那里运行。",
        ),
    ),
    Code(
        "CardModelKeptForOthers",
        Stage.ORDER,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("Idle cards of this model are kept for gangs that can use no other", "该型号的空闲卡保留给只能使用它的组"),
        Text(
            "idle cards on {count} nodes are kept for gangs that can use no other model",
            "{count} 个节点上的空闲卡保留给只能使用该型号的组",
        ),
        Text(
            "The plugin `cardmodels` keeps scarce models for the gangs that need them.",
            "`cardmodels` 插件为需要的组保留稀缺型号。",
        ),
        Text("Wait, or allow further card models.", "等待，或允许更多卡型号。"),
    ),
    Code(
        "RevocableZone",
        Stage.ORDER,
        Outcome.WAIT,
        Owner.USER,
        Text("The nodes are lent by the hour", "节点按时段出借"),
        Text(
            "{count} nodes are lent by the hour, and are closed now or not for this pod",
            "{count} 个节点按时段出借，目前关闭或不供此 Pod 使用",
        ),
        Text(
            "Nodes of a revocable zone are open at set hours, for pods that may be preempted.",
            "可回收区域的节点只在规定时段向可抢占的 Pod 开放。",
        ),
        Text("Wait for the hour, or mark the pods as preemptable.", "等待开放时段，或将 Pod 标记为可抢占。"),
    ),
    Code(
        "RoomSinceAttempt",
        Stage.ORDER,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("Room appeared after the last attempt", "上次尝试后出现了空位"),
        Text(
            "{count} nodes have room since the last attempt; the next cycle tries it again",
            "上次尝试后 {count} 个节点有了空位；下个周期会再次尝试",
        ),
        Text("Nodes became free after the pod was tried in this cycle.", "本周期尝试该 Pod 之后有节点空闲。"),
        Text("Wait for the next cycle.", "等待下一个周期。"),
    ),
    Code(
        "PodGroupNotRead",
        Stage.EXTERNAL,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("The PodGroup could not be read", "无法读取 PodGroup"),
        Text("the PodGroup could not be read[: {detail}]", "无法读取 PodGroup[：{detail}]"),
        Text(
            "job-controller reads a gang's PodGroup before it is placed, and the API server refused or did not answer.",
            "放置前 job-controller 会读取组的 PodGroup，而 API 服务器拒绝或未应答。",
        ),
        Text(
            "Have an operator look at job-controller's rights and the API server.",
            "请运维检查 job-controller 的权限和 API 服务器。",
        ),
    ),
    Code(
        "OwnerNotRead",
        Stage.EXTERNAL,
        Outcome.WAIT,
        Owner.SYSTEM,
        Text("The pods' owner is not read yet", "尚未读取 Pod 的所有者"),
        Text("the pods' owner is not read yet[: {detail}]", "尚未读取 Pod 的所有者[：{detail}]"),
        Text(
            "job-controller reads the objects that own the pods before it places one of them: they say how many have to start together.",
            "放置前 job-controller 会读取 Pod 的所有者对象：其中写明必须一起启动的数量。",
        ),
        Text(
            "Wait; if it lasts, have an operator look at the API server.",
            "等待；若持续存在，请运维检查 API 服务器。",
        ),
    ),
    Code(
        "ExtraPod",
        Stage.EXTERNAL,
        Outcome.WAIT,
        Owner.USER,
        Text("The pod is more than its owner declares", "该 Pod 超出其所有者声明的数量"),
        Text("the pod is more than its owner declares[: {detail}]", "该 Pod 超出其所有者声明的数量[：{detail}]"),
        Text(
            "The pod's owner declares fewer pods of its role than exist. The pod is no member of the gang: it is placed alone, after the gang has its minimum.",
            "Pod 的所有者为该角色声明的 Pod 数少于现有数量。该 Pod 不是组的成员：在组满足最小数量之后单独放置。",
        ),
        Text(
            "Wait, raise the number of replicas of the owner, or delete the pod.",
            "等待，提高所有者的副本数，或删除该 Pod。",
        ),
    ),
    Code(
        "OwnerNotReadable",
        Stage.EXTERNAL,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("The pods' owner cannot be read", "无法读取 Pod 的所有者"),
        Text("the pods' owner cannot be read[: {detail}]", "无法读取 Pod 的所有者[：{detail}]"),
        Text(
            "The kind of the pod's owner is not served, HBox may not read it, or the owner is gone. The pod is placed alone.",
            "Pod 所有者的类型未提供、HBox 无权读取，或所有者已不存在。该 Pod 被单独放置。",
        ),
        Text(
            "Have an operator grant job-controller get, list and watch of the kind, or install its definition.",
            "请运维授予 job-controller 对该类型的 get、list、watch 权限，或安装其定义。",
        ),
    ),
    Code(
        "VolumesNotReady",
        Stage.EXTERNAL,
        Outcome.CHANGE,
        Owner.USER,
        Text("A volume is not ready", "卷未就绪"),
        Text("a volume is not ready[: {detail}]", "卷未就绪[：{detail}]"),
        Text(
            "A PersistentVolumeClaim that the pod uses is missing, is being deleted, or has no volume.",
            "Pod 使用的 PersistentVolumeClaim 不存在、正在删除，或没有卷。",
        ),
        Text("Create or repair the claim: `kubectl describe pvc NAME`.", "创建或修复该声明：`kubectl describe pvc NAME`。"),
    ),
    Code(
        "JobQuarantined",
        Stage.EXTERNAL,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("The scheduler fails at this job", "调度器处理该作业时出错"),
        Text("the scheduler fails at it and leaves it out for a while[: {detail}]", "调度器处理它时出错，暂时跳过[：{detail}]"),
        Text(
            "An internal error of the scheduler was traced to this job, a node, or its namespace.",
            "调度器的内部错误被归因到该作业、某节点或其命名空间。",
        ),
        Text("Have an operator report it, with the output of `hbox diag`.", "请运维附上 `hbox diag` 的输出上报。"),
    ),
    Code(
        "SchedulerAbsent",
        Stage.EXTERNAL,
        Outcome.ESCALATE,
        Owner.OPERATOR,
        Text("No scheduler runs for the job's shard", "作业所在分片没有运行的调度器"),
        Text("no scheduler runs for its shard[: {detail}]", "其分片没有运行的调度器[：{detail}]"),
        Text(
            "Queues are divided among shards, and this shard's scheduler is absent.",
            "队列分属不同分片，而该分片的调度器不在运行。",
        ),
        Text(
            "Have an operator start it: `hbox check` names what does not answer.",
            "请运维启动它：`hbox check` 会指出未应答的组件。",
        ),
    ),
)
