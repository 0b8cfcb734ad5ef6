"""What users need to test their own parts: conformance suites and a synthetic task."""
