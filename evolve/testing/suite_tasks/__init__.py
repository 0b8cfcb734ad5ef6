"""Functions that the task files of a suite need when a judge executes them.

- `calls`: arguments of a function, and those of the calls that a test program makes.
- `workloads`: inputs that a JSON definition describes.
- `rules`: the suites' own rules of correctness.
"""
