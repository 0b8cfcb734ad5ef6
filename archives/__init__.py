"""Archives: which programs a search keeps, and where.

- `TopK`: the best programs, one line of them.
- `MapElites`: the best program of every cell of a grid over descriptors.
- `Priority`: a queue by repeated evaluations (POLCA).
- `Lineage`: versions, each as fast as the best before it (AVO).
- `Tree`: programs with the ancestors that lead to them.
- `Pareto`: speed against other ends.
- `Islands`: several archives with migration between them.
- `Novelty`: another archive, without near duplicates.
"""

from archives.islands import Islands
from archives.lineage import Lineage
from archives.map_elites import MapElites
from archives.novelty import Novelty
from archives.pareto import Pareto
from archives.priority import Priority
from archives.topk import TopK
from archives.tree import Tree

__all__ = ["Islands", "Lineage", "MapElites", "Novelty", "Pareto", "Priority", "TopK", "Tree"]
