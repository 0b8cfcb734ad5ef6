"""From what is known of a search to a prompt, and from a reply to a program."""
