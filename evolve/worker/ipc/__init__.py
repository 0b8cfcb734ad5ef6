"""Messages, tensors and words of memory that processes share."""
