"""Why a card, or a node's cards together, cannot take what a container asks for: HAMi's own words (sources: hami-labels)."""

from enum import StrEnum


class DeviceLabel(StrEnum):
    """In the order in which a card is judged; it gets the first that applies."""

    NODE_INSUFFICIENT = "NodeInsufficientDevice"  #: fewer cards on the node than asked for
    MODE = "ModeNotFit"  #: the node does not share its cards in the way that is asked for
    NOT_HEALTHY = "CardNotHealth"
    UNHEALTHY = "CardUnhealthy"  #: MetaX's word for it
    CORDONED = "CardCordoned"
    TYPE = "CardTypeMismatch"
    UUID = "CardUuidMismatch"
    IN_USE = "CardsInUse"  #: HBox's own word: one pod at a time may use the card, and one does
    SLOTS = "CardTimeSlicingExhausted"
    QUOTA = "ResourceQuotaNotFit"
    MEMORY = "CardInsufficientMemory"
    CORE = "CardInsufficientCore"
    EXCLUSIVE = "ExclusiveDeviceAllocateConflict"  #: a whole card is requested, and it is in use
    UNITS = "CardComputeUnitsExhausted"  #: all of its compute is promised to others
    CUSTOM = "CardNotFoundCustomFilterRule"
    MIG = "CardMigTopologyInfeasible"
    QOS = "CardQosPolicyMismatch"
    APP_CLASS = "CardAppClassMismatch"
    NUMA = "NumaNotFit"
    TOO_FEW = "AllocatedCardsInsufficientRequest"  #: some cards fit, fewer than asked for
