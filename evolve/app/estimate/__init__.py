"""What a budget buys, before and while it is spent."""
