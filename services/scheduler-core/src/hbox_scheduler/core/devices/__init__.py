"""Cards: one file a vendor."""

from .nvidia import CardFit, free_percent, pick, slices_of

__all__ = ["CardFit", "free_percent", "pick", "slices_of"]
