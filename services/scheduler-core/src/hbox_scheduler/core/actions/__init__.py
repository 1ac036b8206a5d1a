"""What a cycle does with pending jobs, one action a file."""
