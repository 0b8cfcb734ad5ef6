"""The application: what a run, a suite, a comparison and an estimate are."""
