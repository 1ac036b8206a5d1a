"""Pure: computes jobs from pods, PodGroups and PriorityClasses, and feedback to Kubernetes from verdicts."""
