"""Small modules, one for each way in which Python binds a name; `outcome` says what it saw.

Each binds the module's `K` somewhere else too, where it must keep its name, or not.
"""

SCOPES = {
    "match in a function": """
K = 2
def found(value):
    match value:
        case [_, K]: return K
        case {"a": 1, **K}: return K
        case [*K]: return K
        case str() as K: return K
def outcome():
    return found([1, 5]), found({"a": 1, "b": 2}), found([1, 2, 3]), found("x"), K
""",
    "match in the module": """
match [1, [2, 3], {"a": 4, "b": 5}, 6, 7]:
    case [K, [*L], {"a": int() as M, ** N , }, *O]: pass
def outcome():
    return K, L, M, N, O
""",
    "match of a class and a value": """
import enum
class K(enum.Enum):
    A = 1
def outcome():
    match K.A:
        case K(name="B"): return "B"
        case K.A: return "A"
""",
    "a handler of an inner function": """
x = 2
def outcome():
    def inner():
        try: raise ValueError
        except ValueError as x: return str(x)
    return x, inner()
""",
    "a handler in the module": """
try: raise ValueError("said")
except (ValueError, TypeError) as K: said = str(K)
try: K
except NameError as K: gone = "gone"
def outcome():
    return said, gone
""",
    "a handler of a global name": """
K = 2
def forget():
    global K
    try: raise ValueError
    except ValueError as K: pass
def outcome():
    forget()
    return "K" in globals()
""",
    "a global below a local": """
K = 2
def outcome():
    K = 3
    def inner():
        global K
        def innermost(): return K
        K += 1
        return K, innermost()
    return K, inner(), K
""",
    "a global that only a function binds": """
def bind():
    global K, L
    K = 2
    import os.path as L
def outcome():
    bind()
    return K, L.join("a", "b")
""",
    "nonlocal": """
K = 2
def outcome():
    K = 3
    def inner():
        nonlocal K
        K += 1
    inner()
    return K
""",
    "an assignment expression in a lambda": """
K = 2
def outcome():
    return (lambda: (K := 3) + K)(), [(lambda: (K := 4))() for _ in "a"], K
""",
    "an assignment expression in a comprehension": """
K = 2
def local():
    return [K := n for n in (1, 2)], K
L = [M := n for n in (1, 2) if [(O := m) for m in (3, 4)]]
def outcome():
    return local(), K, M, O
""",
    "an assignment expression in a default": """
K = 2
def outcome():
    def inner(x=(K := 3)): return x
    return inner(), K
""",
    "an assignment expression in the arguments of a class": """
K = 2
def outcome():
    class Inner((K := object)): pass
    return K is object
""",
    "a lambda in a formatted string": """
K = 2
def outcome():
    return f"{(lambda K: K)(3)} {[K for K in (4, 5)]} {K:>{K}} {K=} {'K'}"
""",
    "a class and its methods": """
K, L = 2, [7]
class Table:
    K = 3
    twice = lambda self: K
    if True:
        def method(self, x=K) -> K: return x, K
    found = [K for _ in "a"], [n for n in (K, K)]
    def L(self, x=K): return L, x
    annotated = method.__annotations__["return"]
    class Inner:
        seen = K
def outcome():
    table = Table()
    return table.method(), table.twice(), table.found, table.L(), table.annotated, table.Inner.seen
""",
    "statements of a class": """
import os as K
L = 2
class Table:
    for L in range(3): last = L
    import math as K
    try: raise ValueError("said")
    except ValueError as M: said = str(M)
    match [5]:
        case [N]: sixth = N + 1
    with open("/dev/null") as O: closed = O.closed
    P: int
    first = K.floor(1.5)
M = N = O = P = 9
def outcome():
    return Table.last, Table.first, Table.said, Table.sixth, Table.closed, M, N, P, L
""",
    "a class that binds a global": """
K = 2
class Table:
    global K
    K = 3
    L = K
def outcome():
    return K, Table.L, hasattr(Table, "K")
""",
    "a class in a function with a local": """
K = 2
def outcome():
    K = 3
    class Table:
        K = K
    return Table.K
""",
    "a declared name without a value": """
K = 2
class Table:
    K: int
    L = K
def outcome():
    return Table.L, hasattr(Table, "K")
""",
    "del": """
K = L = 2
del L
def outcome():
    K = 3
    del K
    return "L" in globals()
""",
    "decorators": """
def K(function): return lambda: ("seen", function())
@K
def outcome():
    K = 3
    return K
""",
    "annotations in quotation marks": """
import typing
class K: pass
def used(x: "K", y: "list[K]", z: "typing.Literal['K']" = "K") -> "K | None": return z
def outcome():
    hints = typing.get_type_hints(used)
    return hints["x"] is K, hints["y"] == list[K], hints["z"].__args__, used(1, 2)
""",
    "__all__": """
__all__ = ["outcome"]
K = 2
def outcome():
    return K
""",
    "a star": """
from math import *
def outcome():
    return floor(1.5)
""",
    "a name of another alphabet": """
größe = 2
def outcome():
    match ["größe", 3]:
        case ["größe", größe]: return größe
""",
}

SCOPES_OF_312 = {
    "type parameters": """
K, T = 2, int
def used[K: T](x: K, y=K) -> K: return y
class Table[T]:
    x: T
    def method(self, y=K): return y
type L[K] = list[K]
def outcome():
    bound, named = used.__type_params__[0].__bound__, L.__value__.__args__[0].__name__
    return used(1), bound, Table().method(), named
""",
}
