"""Objects of jobs in Kubernetes: finding them by the names that users type, and changing them with the user's rights."""
