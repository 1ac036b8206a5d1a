"""Pure: node objects become node states."""
