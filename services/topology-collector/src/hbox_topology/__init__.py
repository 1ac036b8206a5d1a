"""Node inventory and fabric become node state."""
