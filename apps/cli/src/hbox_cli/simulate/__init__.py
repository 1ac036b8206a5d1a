"""What `hbox simulate` reads and prints: saved clusters as Kubernetes documents in, outcomes of scheduling cycles out."""
