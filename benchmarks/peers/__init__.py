"""Other systems on the workload that is ours, in the same run."""
