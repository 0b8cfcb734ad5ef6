"""What is known of a candidate beside its outcome: text, tools, memory, torch's share."""
