"""The application: runs, suites, comparisons and estimates."""
