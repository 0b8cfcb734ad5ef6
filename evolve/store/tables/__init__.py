"""What is read from and written to each table."""
