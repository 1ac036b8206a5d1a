"""Checks of `hbox check`: before an install, of one node, and of the pods in a manifest."""
