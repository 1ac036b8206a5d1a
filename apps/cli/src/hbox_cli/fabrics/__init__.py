"""What `hbox topo` reads and shows."""
