"""The likely result of a budget, before and while it is spent."""
