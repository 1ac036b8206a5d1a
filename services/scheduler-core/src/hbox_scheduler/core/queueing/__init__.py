"""Jobs between cycles: their order, and what unschedulable jobs wait for."""
