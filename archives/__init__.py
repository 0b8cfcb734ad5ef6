"""Archives: which programs a search keeps, and where.

- `TopK`: the best programs, one line of them.
- `MapElites`: the best program of every cell of a grid over descriptors.
"""

from archives.map_elites import MapElites
from archives.topk import TopK

__all__ = ["MapElites", "TopK"]
