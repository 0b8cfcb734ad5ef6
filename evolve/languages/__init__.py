"""Languages that kernels are written in; each is one file, and `registry` lists them.

A file has one constant, a `Language` (`base`): how a source shows it, its text in prompts, where it
runs, the files of its builds, and how its launches are stubbed. Another package adds one by an
entry point of the group `evolve.languages`. `evolve.testing.languages` has the tests that each must
pass.

The runner imports this package, so nothing of the judge may be in it. Torch and compilers are
imported inside of functions.
"""
