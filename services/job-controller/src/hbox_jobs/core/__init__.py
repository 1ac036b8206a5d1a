"""Pure: pods, PodGroups and PriorityClasses become jobs; verdicts become what Kubernetes is told."""
