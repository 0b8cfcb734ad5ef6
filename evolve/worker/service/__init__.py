"""The worker as a program: requests over a socket or from a file, and judges that answer them."""
