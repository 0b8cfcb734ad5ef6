"""What the server behind `tests.forked` imports once: all that commands need but torch."""

import importlib
import pkgutil
import sys
import threading

PACKAGES = ("evolve.cli", "evolve.app", "evolve.search", "evolve.store", "evolve.report", "operators", "archives")
HEAVY = ("evolve.report.export.", "operators.inductor.device_functions")  # torch, triton

for name in PACKAGES:
    package = importlib.import_module(name)
    for module in pkgutil.walk_packages(package.__path__, f"{name}."):
        if not module.name.startswith(HEAVY) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)

assert "torch" not in sys.modules, "a process that is forked beside torch's threads can hang"
assert threading.active_count() == 1
