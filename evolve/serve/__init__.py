"""The judge behind HTTP: jobs that outlive every process, for training loops and other clients."""
