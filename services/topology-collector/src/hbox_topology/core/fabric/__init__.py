"""What connects the machines: switches, cards and cables as a source saw them, and the tree of units, pods and roots made of that."""
