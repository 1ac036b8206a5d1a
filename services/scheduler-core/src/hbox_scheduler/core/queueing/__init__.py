"""Jobs between cycles: whose turn it is, and what the others wait for."""
