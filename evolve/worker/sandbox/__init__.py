"""What keeps a candidate's process from harm."""
