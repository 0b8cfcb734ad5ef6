"""An elementwise kernel and the one after it, as one kernel."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.source.pytext import Edit
from operators.local.structure.program import (
    Launch,
    NotApplicable,
    TritonProgram,
    calls,
    names,
    parameters,
    parse,
    passed,
    stored,
)
from operators.local.structure.values import Values

_ELEMENTWISE = frozenset(
    f"tl.{name}"
    for name in (
        *("abs", "arange", "broadcast_to", "ceil", "cos", "erf", "exp", "exp2", "floor", "fma"),
        *("full", "load", "log", "log2", "maximum", "minimum", "program_id", "rsqrt", "sigmoid"),
        *("sin", "sqrt", "sqrt_rn", "store", "where", "zeros"),
    )
)
_HELPERS = ("maximum", "minimum", "div_floor_integer", "remainder_integer")
_MAKES_ROOM = ("torch.empty", "torch.empty_strided")
_ACCESSES = ("tl.load", "tl.store")
_FLOAT32 = "torch.float32"


@dataclass(frozen=True, slots=True)
class _Part:
    """One of the two: its body, its launch, and the argument for each pointer, as text."""

    kernel: ast.FunctionDef
    launch: Launch
    pointers: dict[str, str]
    block: str

    def touched(self, kind: str) -> set[str]:
        """The argument of a load or a store (`tl.load`, `tl.store`)."""
        return {
            self.pointers[name]
            for called, call in calls(self.kernel)
            if called == kind
            for name in names(call.args[0]) & self.pointers.keys()
        }


def fuse_pointwise(program: TritonProgram, name: str) -> str:
    """Put the kernel that is launched next into this one; values between them stay in registers.

    Both are elementwise over one dimension of the same size, and the second reads the first one's
    output at the same places.
    """
    first = _part(program, name)
    between, following = _next(first.launch)
    second = _part(program, following)
    if (
        ast.unparse(first.launch.counts[0]).partition(",")[0]
        != (ast.unparse(second.launch.counts[0]).partition(",")[0])
    ):
        raise NotApplicable(f"{following} goes over another number of elements")
    passing = first.touched("tl.store") & second.touched("tl.load")
    if not passing:
        raise NotApplicable(f"{following} reads nothing that it writes")
    _require_apart(first, second)
    for buffer in passing:
        _require_float32(first.launch.block, buffer)
    both = [first.launch.call, second.launch.call]
    unread = {buffer for buffer in passing if program.is_only_in(buffer, both)}
    unread -= second.touched("tl.store")
    fused, arguments = _Fusion(first, second, passing, unread).function(
        program.free(_joined(name, following))
    )
    edits = [
        *_forward(program, first, second, fused, arguments, between, unread),
        program.replaced_definition(name, fused),
        program.without_definition(program.kernels[following]),
    ]
    options = [option.value for option in second.launch.call.keywords]
    gone = {
        name
        for option in options
        for name in names(option)
        if program.is_only_in(name, [second.launch.call])
    }
    return program.written(edits, {}, gone)


def _joined(first: str, second: str) -> str:
    parts = [name.removesuffix("_kernel") for name in (first, second)]
    return f"{'_'.join(dict.fromkeys('_'.join(parts).split('_')))}_kernel"


def _part(program: TritonProgram, name: str) -> _Part:
    """Raises NotApplicable if the kernel is not elementwise over one dimension."""
    if name not in program.kernels:
        raise NotApplicable(f"{name} is no Triton kernel")
    kernel, launches = program.kernel(name), program.launches(name)
    if len(launches) != 1 or len(launches[0].counts) != 1:
        raise NotApplicable(f"{name} has more launches than one, or more axes")
    for node in kernel.body:
        if not isinstance(node, ast.Assign | ast.Expr | ast.AnnAssign):
            raise NotApplicable(f"{name} has a loop or a branch")
        if isinstance(node, ast.AnnAssign):
            raise NotApplicable(f"{name} has constants of its own")
        for called, _ in calls(node):
            known = called in _ELEMENTWISE or called in _HELPERS or called.startswith("libdevice.")
            if not known and called.rpartition(".")[2] not in ("to", "broadcast_to"):
                raise NotApplicable(f"{name} calls {called}")
    if len(stored(kernel.body)) != len(set(stored(kernel.body))):
        raise NotApplicable(f"{name} assigns a name twice")
    blocks = [a.arg for a in kernel.args.args if a.annotation is not None]
    if len(blocks) != 1 or any("[:, None]" in ast.unparse(node) for node in kernel.body):
        raise NotApplicable(f"{name} has not one dimension")
    given = passed(kernel, launches[0])
    pointers = {p: ast.unparse(given[p]) for p in parameters(kernel) if p not in blocks}
    return _Part(kernel, launches[0], pointers, blocks[0])


def _next(launch: Launch) -> tuple[list[ast.stmt], str]:
    """Statements up to the next launch in the block, and its kernel."""
    at = launch.block.index(launch.statement)
    between: list[ast.stmt] = []
    for statement in launch.block[at + 1 :]:
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Subscript(value=ast.Name(id=name)))):
                return between, name
            case ast.Assign(value=ast.Call(func=function)) if ast.unparse(function) in _MAKES_ROOM:
                between.append(statement)
            case ast.Delete():
                between.append(statement)
            case _:
                break
    raise NotApplicable("no other kernel is launched right after it")


def _require_apart(first: _Part, second: _Part) -> None:
    """The other kernel may touch the outputs of one only at the same places, and by that name."""
    places = [_places(first), _places(second)]
    for writer, (mine, theirs) in ((first, places), (second, places[::-1])):
        for written in writer.touched("tl.store"):
            root = written.partition(".as_strided")[0]
            others = {n for n in (*mine, *theirs) if n.partition(".as_strided")[0] == root}
            if others != {written}:
                raise NotApplicable(f"{written} is passed in two ways")
            if len({*mine.get(written, ()), *theirs.get(written, ())}) > 1:
                raise NotApplicable(f"{written} is not read where it is written")


def _places(part: _Part) -> dict[str, set[str]]:
    """Where each tensor is touched, as passed: offsets and masks, expanded."""
    values, found = Values(), dict[str, set[str]]()
    values.assign(part.block, ast.Name("BLOCK"))
    for node in part.kernel.body:
        for called, call in calls(node):
            if called in _ACCESSES:
                pointer, place = _place(part, call, called)
                found.setdefault(pointer, set()).add(values.text(place))
        if isinstance(node, ast.Assign):
            values.assign(ast.unparse(node.targets[0]), node.value)
    return found


def _place(part: _Part, call: ast.Call, called: str) -> tuple[str, ast.expr]:
    """The argument, and an expression of offsets and mask."""
    match call.args[0]:
        case ast.BinOp(left=ast.Name(id=name), op=ast.Add(), right=offset) if name in part.pointers:
            at = 1 if called == "tl.load" else 2
            mask = call.args[at] if len(call.args) > at else ast.Constant(None)
            return part.pointers[name], ast.Tuple([offset, mask], ast.Load())
    raise NotApplicable(f"{ast.unparse(call)} is not an access of pointer + offset")


def _require_float32(block: Sequence[ast.stmt], buffer: str) -> None:
    """A value in a register equals the value in memory."""
    for statement in block:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as made) if (
                name == buffer
            ):
                options = {k.arg: ast.unparse(k.value) for k in made.keywords}
                if ast.unparse(made.func) in _MAKES_ROOM and options.get("dtype") == _FLOAT32:
                    return
    raise NotApplicable(f"{buffer} is not known to be a float32 buffer")


class _Fusion:
    """Writes the kernel: the first one's body, then the second one's with names of its own.

    Args:
        first: the kernel whose places are taken.
        second: the one that follows.
        passing: buffers that go from one to the other.
        unread: those of them that no other kernel reads.
    """

    def __init__(self, first: _Part, second: _Part, passing: set[str], unread: set[str]) -> None:
        self._first, self._second = first, second
        self._passing, self._unread = passing, unread
        self._overwritten = passing & second.touched("tl.store")
        self._values, self._of_first = Values(), dict[str, str]()
        self._kept: dict[str, str] = {}  # the name of the value, by the buffer
        self._loaded: dict[tuple[str, str], str] = {}  # and by tensor and place

    def function(self, name: str) -> tuple[ast.FunctionDef, list[str]]:
        """The kernel, and the arguments for its pointers."""
        body = [*self._head(), *self._tail()]
        pointers = {argument: pointer for pointer, argument in self._first.pointers.items()}
        for pointer, argument in self._second.pointers.items():
            pointers.setdefault(argument, self._renamed(pointer))
        arguments = [argument for argument in pointers if argument not in self._unread]
        new = self._first.kernel
        new.name, new.body = name, body
        blocks = [a for a in new.args.args if a.arg == self._first.block]
        new.args.args = [*(ast.arg(pointers[argument]) for argument in arguments), *blocks]
        return new, arguments

    def _head(self) -> list[ast.stmt]:
        kept: list[ast.stmt] = []
        for node in self._first.kernel.body:
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._values.assign(name, value)
                    if (place := self._load(self._first, value)) is not None:
                        self._loaded[place] = name
                    self._of_first.setdefault(self._values.text(ast.Name(name)), name)
                case ast.Expr(value=ast.Call() as call) if ast.unparse(call.func) == "tl.store":
                    buffer, _ = _place(self._first, call, "tl.store")
                    if buffer in self._passing:
                        kept.append(self._kept_value(buffer, call))
                    if buffer in self._unread or buffer in self._overwritten:
                        continue
            kept.append(node)
        return kept

    def _kept_value(self, buffer: str, store: ast.Call) -> ast.stmt:
        """An assignment of the stored value, in the type and shape that a load would have."""
        name, value = self._fresh(f"{buffer}_value"), ast.unparse(store.args[1])
        self._kept[buffer] = name
        store.args[1] = ast.Name(name, ast.Load())
        return parse(f"{name} = tl.broadcast_to({value}, [{self._first.block}]).to(tl.float32)")

    def _tail(self) -> list[ast.stmt]:
        new = {name: self._renamed(name) for name in stored(self._second.kernel.body)}
        new |= {pointer: self._pointer(pointer) for pointer in self._second.pointers}
        new[self._second.block] = self._first.block
        kept: list[ast.stmt] = []
        for node in self._second.kernel.body:
            name = next(iter(stored([node])), "")
            if (known := self._passed(node)) is not None:
                new[name] = known
                continue
            tensor = self._load(self._second, node.value) if isinstance(node, ast.Assign) else None
            renamed = _Renaming(new).visit(node)
            if isinstance(renamed, ast.Assign):
                known = self._of_first.get(self._values.text(renamed.value))
                if tensor is not None:
                    known = self._loaded.get((tensor[0], self._place_text(renamed.value)))
                if known is not None:
                    new[name] = known
                    continue
                self._values.assign(new[name], renamed.value)
            kept.append(renamed)
        return kept

    def _load(self, part: _Part, value: ast.expr) -> tuple[str, str] | None:
        """The tensor and the place that a value is loaded from, if neither kernel writes."""
        if not isinstance(value, ast.Call) or ast.unparse(value.func) != "tl.load":
            return None
        tensor, _ = _place(part, value, "tl.load")
        written = self._first.touched("tl.store") | self._second.touched("tl.store")
        return None if tensor in written else (tensor, self._place_text(value))

    def _place_text(self, load: ast.expr) -> str:
        """Offset and mask of a load, expanded."""
        assert isinstance(load, ast.Call)
        offset = load.args[0]
        assert isinstance(offset, ast.BinOp)
        return ", ".join(self._values.text(part) for part in (offset.right, *load.args[1:2]))

    def _passed(self, node: ast.stmt) -> str | None:
        """The value for a load of the first kernel's output."""
        match node:
            case ast.Assign(value=ast.Call() as call) if ast.unparse(call.func) == "tl.load":
                buffer, _ = _place(self._second, call, "tl.load")
                if buffer in self._kept:
                    return self._kept[buffer]
        loaded = [call for called, call in calls(node) if called == "tl.load"]
        if any(_place(self._second, call, "tl.load")[0] in self._kept for call in loaded):
            raise NotApplicable("what passes between is read inside an expression")
        return None

    def _pointer(self, pointer: str) -> str:
        """The first one's name for the same tensor, else a new one."""
        argument = self._second.pointers[pointer]
        same = [name for name, other in self._first.pointers.items() if other == argument]
        return same[0] if same else self._renamed(pointer)

    def _renamed(self, name: str) -> str:
        mine = {*stored(self._first.kernel.body), *parameters(self._first.kernel)}
        return f"{name}_b" if name in mine else name

    def _fresh(self, wanted: str) -> str:
        taken = {*stored(self._first.kernel.body), *stored(self._second.kernel.body)}
        return wanted if wanted not in taken else f"{wanted}_b"


class _Renaming(ast.NodeTransformer):
    def __init__(self, new: dict[str, str]) -> None:
        self._new = new

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Name(self._new.get(node.id, node.id), node.ctx)


def _forward(
    program: TritonProgram,
    first: _Part,
    second: _Part,
    fused: ast.FunctionDef,
    arguments: list[str],
    between: list[ast.stmt],
    unread: set[str],
) -> list[Edit]:
    """The launches as one, in the place of the second; buffers that are gone are not made."""
    options = first.launch.call.keywords
    function = ast.Subscript(ast.Name(fused.name), first.launch.grid)
    values = [ast.parse(argument, mode="eval").body for argument in arguments]
    edits = [
        program.without(first.launch.statement),
        program.replaced_call(second.launch, ast.Call(function, values, options)),
    ]
    for statement in first.launch.block:
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)]) if name in unread:
                edits.append(program.without(statement))
            case ast.Delete(targets=targets):
                left = [t for t in map(ast.unparse, targets) if t not in unread]
                if statement in between and {*left} & {*arguments}:
                    raise NotApplicable("a buffer is given back in between")
                if not left:
                    edits.append(program.without(statement))
                elif len(left) < len(targets):
                    span = program.module.span(statement)
                    edits.append(Edit(*span, f"del {', '.join(left)}"))
    return edits
