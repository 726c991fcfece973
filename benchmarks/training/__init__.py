"""The same federated training in several engines: the workloads, ours, plain loops and peers."""
