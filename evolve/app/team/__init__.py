"""Quotas of people who share a database."""
