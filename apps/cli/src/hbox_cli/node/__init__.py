"""Nodes and their cards as `hbox node` and `hbox nodes` show them."""
