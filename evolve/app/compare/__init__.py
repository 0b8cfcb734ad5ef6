"""Several searches with equal budgets."""
