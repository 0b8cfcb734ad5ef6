"""A coding agent that tries programs in a search (`operators=agent`)."""
