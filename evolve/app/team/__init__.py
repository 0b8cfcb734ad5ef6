"""What people who share a database agree on: quotas."""
