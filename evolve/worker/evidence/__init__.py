"""Evidence on a candidate beside its outcome: text, tools, memory, torch's share."""
