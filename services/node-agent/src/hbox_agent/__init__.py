"""What a node's kubelet gave to whom, told to the platform."""
