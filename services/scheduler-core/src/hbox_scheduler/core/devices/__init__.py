"""Cards: one file a vendor."""

from .nvidia import CardRoom, free_percent, pick, slices_of

__all__ = ["CardRoom", "free_percent", "pick", "slices_of"]
