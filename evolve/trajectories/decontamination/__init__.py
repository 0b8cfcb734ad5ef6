"""Which tasks an export leaves out, and how the others are split."""
