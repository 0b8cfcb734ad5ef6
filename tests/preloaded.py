"""What the server behind `tests.forked` imports once: all that commands need but torch."""

import gc
import importlib
import pkgutil
import sys
import threading

PACKAGES = (
    "evolve.cli evolve.app evolve.serve evolve.search evolve.store evolve.report operators archives"
)
LEFT_OUT = (
    "evolve.app.dispatch.selection",  # imports torch, as the next do
    "evolve.app.dispatch.signatures",
    "evolve.report.export.",
    "operators.local.inductor.device_functions",  # imports triton, as the next do
    "operators.local.ports.kernels.",
    "operators.local.templates.kernels.",
)

for name in PACKAGES.split():
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.startswith(LEFT_OUT) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)

assert not {"torch", "triton", "litellm"} & set(sys.modules), "forked beside threads, or too early"
assert threading.active_count() == 1
gc.collect()
gc.freeze()  # or each process would visit, and so copy, all of these objects
