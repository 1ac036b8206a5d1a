"""Codes of queues and quotas."""

from hbox_common.model.explanation import Outcome, Owner, Stage

from ..code import Code, Text

CODES = (
    Code(
        "QueueNotFound",
        Stage.QUOTA,
        Outcome.CHANGE,
        Owner.USER,
        Text("The queue does not exist", "队列不存在"),
        Text("queue {queue} does not exist[; did you mean {nearest}?]", "队列 {queue} 不存在[；是否想写 {nearest}？]"),
        Text(
            "The pod or its PodGroup names a queue that the cluster does not have.",
            "Pod 或其 PodGroup 指定的队列在集群中不存在。",
        ),
        Text(
            "Name an existing queue (`hbox queue ls`), or ask an administrator to create it.",
            "使用已有队列（`hbox queue ls`），或请管理员创建。",
        ),
    ),
    Code(
        "QueueNotLeaf",
        Stage.QUOTA,
        Outcome.CHANGE,
        Owner.USER,
        Text("The queue has queues below it and takes no jobs", "队列下有子队列，不接受作业"),
        Text(
            "queue {queue} has queues below it[: {known}]; jobs go to one of these",
            "队列 {queue} 下有子队列[：{known}]；作业应提交到其中之一",
        ),
        Text("Jobs may only be in queues without children.", "作业只能位于没有子队列的队列中。"),
        Text("Name a queue below it: `hbox queue tree` shows them.", "改用其子队列：`hbox queue tree` 可查看。"),
    ),
    Code(
        "QueueInvalid",
        Stage.QUOTA,
        Outcome.CHANGE,
        Owner.QUEUE_ADMIN,
        Text("The queue's specification is not valid", "队列的规格不合法"),
        Text("queue {queue} is not valid[: {detail}]", "队列 {queue} 不合法[：{detail}]"),
        Text(
            "The queue has a missing parent, a cycle, or amounts that contradict each other.",
            "队列缺少父队列、存在环，或数额互相矛盾。",
        ),
        Text("Correct the queue: `hbox queue show QUEUE` names the fault.", "修正队列：`hbox queue show QUEUE` 会指出问题。"),
    ),
    Code(
        "QueueNotForNamespace",
        Stage.QUOTA,
        Outcome.CHANGE,
        Owner.QUEUE_ADMIN,
        Text("The queue does not admit this namespace", "队列不接受该命名空间"),
        Text("queue {queue} does not admit namespace {namespace}", "队列 {queue} 不接受命名空间 {namespace}"),
        Text(
            "The queue lists the namespaces whose jobs it takes, and this one is not among them.",
            "队列列出了可接受的命名空间，其中没有该命名空间。",
        ),
        Text(
            "Use another queue, or ask the queue's administrator to add the namespace.",
            "使用其他队列，或请队列管理员加入该命名空间。",
        ),
    ),
    Code(
        "QueueNotForPriorityClass",
        Stage.QUOTA,
        Outcome.CHANGE,
        Owner.USER,
        Text("The queue does not admit this PriorityClass", "队列不接受该 PriorityClass"),
        Text(
            "queue {queue} does not admit PriorityClass {name}[; it admits {known}]",
            "队列 {queue} 不接受 PriorityClass {name}[；可用：{known}]",
        ),
        Text("The queue lists the PriorityClasses that its jobs may have.", "队列列出了作业可用的 PriorityClass。"),
        Text("Use an admitted PriorityClass, or another queue.", "使用允许的 PriorityClass，或换队列。"),
    ),
    Code(
        "QueueCapabilityExceeded",
        Stage.QUOTA,
        Outcome.WAIT,
        Owner.QUEUE_ADMIN,
        Text("The queue's limit is reached", "队列已达上限"),
        Text("queue {queue} has reached its limit[: {detail}]", "队列 {queue} 已达上限[：{detail}]"),
        Text(
            "The queue, or one above it, has a capability, and this job together with the running ones exceeds it.",
            "该队列或其上级队列设有 capability，此作业与运行中的作业合计超过该值。",
        ),
        Text(
            "Wait until jobs of the queue end, request less, or ask its administrator for a higher capability.",
            "等待队列中的作业结束、减少请求，或请管理员提高 capability。",
        ),
    ),
    Code(
        "QueueLimitTooSmall",
        Stage.QUOTA,
        Outcome.CHANGE,
        Owner.QUEUE_ADMIN,
        Text("The job alone exceeds the queue's limit", "作业本身超过队列上限"),
        Text(
            "the job alone exceeds a limit of queue {queue}[: it needs {need}, and the limit is {largest}]",
            "作业本身超过队列 {queue} 的上限[：需要 {need}，而上限为 {largest}]",
        ),
        Text(
            "The job requests more than the capability of its queue, or of one above it, even if nothing else runs there.",
            "即使没有其他作业，该作业的请求也超过其队列或上级队列的 capability。",
        ),
        Text(
            "Request less, use another queue, or ask its administrator for a higher capability.",
            "减少请求、使用其他队列，或请管理员提高 capability。",
        ),
    ),
    Code(
        "QueueShareSpent",
        Stage.QUOTA,
        Outcome.WAIT,
        Owner.QUEUE_ADMIN,
        Text("The queue has all that the policy gives it now", "队列已获得策略当前给予的全部份额"),
        Text(
            "queue {queue} has all that the policy gives it now[: {detail}]",
            "队列 {queue} 已获得策略当前给予的全部份额[：{detail}]",
        ),
        Text(
            "Other queues need their shares, and the policy lends this queue nothing more.",
            "其他队列需要其份额，策略不再向该队列借出资源。",
        ),
        Text(
            "Wait until demand of other queues falls, or ask for a higher deserved share.",
            "等待其他队列需求下降，或申请更高的 deserved 份额。",
        ),
    ),
    Code(
        "QueueGuaranteedToOthers",
        Stage.QUOTA,
        Outcome.WAIT,
        Owner.QUEUE_ADMIN,
        Text("The free amount is guaranteed to other queues", "空闲资源已保证给其他队列"),
        Text("what is free is guaranteed to other queues[: {detail}]", "空闲资源已保证给其他队列[：{detail}]"),
        Text(
            "Guarantees of other queues keep this amount, used or not.", "其他队列的 guarantee 保留了这部分资源，无论是否使用。"
        ),
        Text(
            "Wait until jobs end, or ask the administrators to lower a guarantee.",
            "等待作业结束，或请管理员降低某个 guarantee。",
        ),
    ),
    Code(
        "QueueBudgetSpent",
        Stage.QUOTA,
        Outcome.WAIT,
        Owner.QUEUE_ADMIN,
        Text("The queue's budget is spent", "队列的预算已用完"),
        Text("the budget of queue {queue} is spent[: {detail}]", "队列 {queue} 的预算已用完[：{detail}]"),
        Text("The queue has a budget of card hours, and its jobs have used it.", "队列设有卡时预算，且已被其作业用完。"),
        Text(
            "Wait for the next period, ask for a larger budget, or use another queue.",
            "等待下一周期、申请更大的预算，或使用其他队列。",
        ),
    ),
    Code(
        "QueueCardModelLimit",
        Stage.QUOTA,
        Outcome.WAIT,
        Owner.QUEUE_ADMIN,
        Text("The queue's limit for this card model is reached", "队列在该卡型号上已达上限"),
        Text(
            "queue {queue} may have no more cards of this model[: {detail}]",
            "队列 {queue} 不能再使用更多该型号的卡[：{detail}]",
        ),
        Text("The queue, or one above it, has a limit by card model.", "该队列或其上级队列设有按卡型号的上限。"),
        Text(
            "Wait until jobs of the queue end, allow another model, or ask for a higher limit.",
            "等待队列中的作业结束、允许其他型号，或申请更高上限。",
        ),
    ),
    Code(
        "ResourceQuotaNotFit",
        Stage.QUOTA,
        Outcome.WAIT,
        Owner.QUEUE_ADMIN,
        Text("A ResourceQuota of the namespace has too little left", "命名空间的 ResourceQuota 余额不足"),
        Text(
            "a ResourceQuota of the namespace has too little left[: {detail}]", "命名空间的 ResourceQuota 余额不足[：{detail}]"
        ),
        Text(
            "A ResourceQuota limits what the pods of the namespace request together.",
            "ResourceQuota 限制了命名空间中 Pod 的请求总量。",
        ),
        Text(
            "Wait until pods of the namespace end, request less, or ask for a larger quota.",
            "等待命名空间中的 Pod 结束、减少请求，或申请更大的配额。",
        ),
    ),
    Code(
        "ResourceQuotaTooSmall",
        Stage.QUOTA,
        Outcome.CHANGE,
        Owner.QUEUE_ADMIN,
        Text("The job alone exceeds a ResourceQuota of the namespace", "作业本身超过命名空间的 ResourceQuota"),
        Text(
            "the job alone exceeds a ResourceQuota of namespace {namespace}[: it needs {need}, and {name} allows {largest} in all]",
            "作业本身超过命名空间 {namespace} 的 ResourceQuota[：需要 {need}，而 {name} 总共只允许 {largest}]",
        ),
        Text(
            "The pods that have to start request more than the quota allows, even if no other pod of the namespace exists.",
            "即使命名空间中没有其他 Pod，须启动的 Pod 的请求也超过配额。",
        ),
        Text("Request less, or ask for a larger quota.", "减少请求，或申请更大的配额。"),
    ),
)
