"""Where the configuration files lie."""

from pathlib import Path

import evolve
from evolve.core.errors import EvolveError


def config_dir() -> Path:
    """The folder of the Hydra groups: inside an installed package, else beside it in a checkout.

    An editable install imports from the checkout, so that edits of `conf/` take effect at once.
    """
    package = Path(evolve.__file__).parent
    for folder in (package / "conf", package.parent / "conf"):
        if (folder / "config.yaml").is_file():
            return folder
    raise EvolveError(f"the configuration files are missing: no config.yaml in {package / 'conf'}")
