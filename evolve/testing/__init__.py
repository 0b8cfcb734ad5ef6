"""Tools for users to test their own parts of a search.

- `archives`, `selection`, `operators`, `model_operators`: conformance suites, one for each
  extension point.
- `model_server`: a scripted OpenAI-compatible endpoint, with every fault there is.
- `parts`, `population`, `facts`: elites, contexts, populations and a run's facts, without a store
  or a device.
- `landscapes`, `landscapes_parts`: tasks that are hard in one way each, with a judge and an
  operator, to try search methods on the real engine.
- `synthetic`: a task and its judge with a planted optimum, deterministic noise and failures.
"""
