"""What users need to test their own parts of a search.

- `archives`, `selection`, `operators`, `model_operators`: conformance suites, one for each
  extension point.
- `model_server`: a scripted OpenAI-compatible endpoint, with every fault there is.
- `parts`, `facts`: elites, contexts and a run's facts without a store or a device.
- `synthetic`: a task and its judge with a planted optimum, deterministic noise and failures.
"""
