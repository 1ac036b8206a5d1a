"""HTTP API of HBox: jobs, queues and nodes for users, portals and the command line."""
