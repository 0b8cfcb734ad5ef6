"""A sum over long rows, cut into parts for as many programs, and joined in their order."""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass

from evolve.core.source.pytext import Edit
from operators.local.structure.program import (
    Choices,
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

_ZEROS = re.compile(r"tl\.(full\(\[[^]]*\], 0|zeros\(\[[^]]*\]), tl\.float32\)$")
_PARTS = Choices(16, (2, 4, 8, 16, 32, 64, 128))
_BUSY = 4  # rows for each multiprocessor; with more, none idles
_ROW, _INSIDE, _COUNT = "xindex", "xmask", "xnumel"  # as the compiler calls them


@dataclass(frozen=True, slots=True)
class _Sums:
    """A kernel in three: the part before its loop, the loop, the part after the sums.

    `names` are those of sums by the accumulators that they are taken of, `taken` the statements
    that take them.
    """

    before: list[ast.stmt]
    loop: ast.For
    taken: list[ast.stmt]
    after: list[ast.stmt]
    names: dict[str, str]
    length: str
    block: str


def split_reduction(program: TritonProgram, name: str) -> str:
    """Have several programs sum parts of a row, and a second kernel add those and go on."""
    kernel, launches = program.kernel(name), program.launches(name)
    if len(launches) != 1 or len(launches[0].counts) != 1:
        raise NotApplicable("it is launched twice, or its grid has more than one axis")
    (launch,) = launches
    _require_few_rows(kernel, program.multiprocessors)
    sums = _read(kernel)
    if _is_taken(kernel, "parts_ptr", "part", "PARTS", "part_length", "part_start"):
        raise NotApplicable("it has parts already")
    constant = program.free(f"{name.removesuffix('_kernel').upper()}_PARTS")
    first = _first(kernel, sums, program.free(f"{name.removesuffix('_kernel')}_parts_kernel"))
    second = _second(kernel, sums)
    texts = [program.replaced_definition(name, new) for new in (first, second)]
    definition = Edit(texts[0].start, texts[0].end, "\n\n\n".join(edit.text for edit in texts))
    edits = [definition, _launched(program, launch, kernel, (first, second), sums, constant)]
    return program.written(edits, {constant: _PARTS})


def _require_few_rows(kernel: ast.FunctionDef, multiprocessors: int) -> None:
    for node in kernel.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=int(count))) if (
                name == _COUNT
            ):
                if count > _BUSY * multiprocessors:
                    raise NotApplicable(f"its {count} rows keep a device busy")
                return
    raise NotApplicable("it does not say how many rows there are")


def _is_taken(kernel: ast.FunctionDef, *wanted: str) -> bool:
    taken = set(parameters(kernel)) | set(stored(kernel.body)) | names(kernel)
    return bool(taken & set(wanted))


def _read(kernel: ast.FunctionDef) -> _Sums:
    places = [at for at, node in enumerate(kernel.body) if isinstance(node, ast.For)]
    if len(places) != 1:
        raise NotApplicable("it has not one loop")
    before, loop, rest = (
        kernel.body[: places[0]],
        kernel.body[places[0]],
        kernel.body[places[0] + 1 :],
    )
    assert isinstance(loop, ast.For)
    if any(map(_stores, before)):
        raise NotApplicable("it stores before its loop, which every part would do")
    length, block = _bounds(loop, kernel)
    inner = set(stored([loop]))
    accumulators = _accumulators(before, loop)
    found: dict[str, str] = {}
    taken: list[ast.stmt] = []
    after: list[ast.stmt] = []
    for node in rest:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if one := next(
                (a for a in accumulators if _is_sum(value, a)), None
            ):
                found[one] = name
                taken.append(node)
            case _:
                after.append(node)
    if not found or any(names(node) & inner for node in after):
        raise NotApplicable("more leaves its loop than sums over rows")
    if not {_ROW, _INSIDE} <= set(stored(before)) or "XBLOCK" not in parameters(kernel):
        raise NotApplicable("its rows are not called as the compiler calls them")
    return _Sums(before, loop, taken, after, found, length, block)


def _bounds(loop: ast.For, kernel: ast.FunctionDef) -> tuple[str, str]:
    """The size of the row, and its blocks."""
    parts = [part for node in loop.body for part in ast.walk(node)]
    if any(isinstance(part, ast.For | ast.If | ast.While) for part in parts):
        raise NotApplicable("its loop holds another one, or a branch")
    if _stores(loop):
        raise NotApplicable("it stores in its loop")
    match loop.iter:
        case ast.Call(args=[ast.Constant(value=0), ast.Name(id=size), ast.Name(id=block)]) if (
            block in parameters(kernel)
        ):
            return size, block
    raise NotApplicable("its loop does not go over blocks of a row")


def _stores(node: ast.stmt) -> bool:
    return any(called.startswith(("tl.store", "tl.atomic_")) for called, _ in calls(node))


def _accumulators(before: Sequence[ast.stmt], loop: ast.For) -> list[str]:
    """Names that begin with 0 and that the loop only adds to."""
    zeros = [
        node.targets[0].id
        for node in before
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and _ZEROS.match(ast.unparse(node.value))
    ]
    return [name for name in zeros if _is_added_to(name, loop)]


def _is_added_to(name: str, loop: ast.For) -> bool:
    """Whether all that has the name is `t = name + ...` and `name = tl.where(..., t, name)`."""
    added = ""
    for node in loop.body:
        if name not in names(node) | set(stored([node])):
            continue
        match node:
            case ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.BinOp(left=ast.Name(id=left), op=ast.Add(), right=right),
            ) if left == name and name not in names(right) and not added:
                added = target
            case ast.Assign(
                targets=[ast.Name(id=target)],
                value=ast.Call(args=[_, ast.Name(id=new), ast.Name(id=old)]) as call,
            ) if (target, new, old) == (name, added, name) and ast.unparse(call.func) == "tl.where":
                added = name
            case _:
                return False
    return added == name


def _is_sum(value: ast.expr, accumulator: str) -> bool:
    return ast.unparse(value) == f"tl.sum({accumulator}, 1)[:, None]"


# --- the two kernels ------------------------------------------------------------------------------


def _first(kernel: ast.FunctionDef, sums: _Sums, name: str) -> ast.FunctionDef:
    """Sums of one part of each row, stored side by side."""
    start = [
        f"part_length = tl.cdiv(tl.cdiv({sums.length}, {sums.block}), PARTS) * {sums.block}",
        "part_start = tl.program_id(1) * part_length",
    ]
    stop = f"tl.minimum(part_start + part_length, {sums.length})"
    loop = ast.For(
        sums.loop.target,
        ast.parse(f"tl.range(part_start, {stop}, {sums.block})", mode="eval").body,
        sums.loop.body,
        [],
    )
    stores = [
        f"tl.store(parts_ptr + ({at} * PARTS + tl.program_id(1)) * {_COUNT} + {_ROW}, "
        f"{one}, {_INSIDE})"
        for at, one in enumerate(sums.names.values())
    ]
    body = [*sums.before, *map(parse, start), loop, *sums.taken, *map(parse, stores)]
    return _function(kernel, name, _used(body))


def _second(kernel: ast.FunctionDef, sums: _Sums) -> ast.FunctionDef:
    """The statements after the sums, of those that parts add up to."""
    begin = [f"{one} = tl.zeros([XBLOCK, 1], tl.float32)" for one in sums.names.values()]
    lines = [
        f"    {one} += tl.load(parts_ptr + ({at} * PARTS + part) * {_COUNT} + {_ROW}, "
        f"{_INSIDE}, other=0.0)"
        for at, one in enumerate(sums.names.values())
    ]
    loop = parse("\n".join(["for part in tl.range(0, PARTS):", *lines]))
    return _function(
        kernel, kernel.name, _used([*sums.before, *map(parse, begin), loop, *sums.after])
    )


def _used(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Without assignments that nothing after them reads."""
    kept: list[ast.stmt] = []
    wanted: set[str] = set()
    for node in reversed(body):
        is_plain = isinstance(node, ast.Assign | ast.AnnAssign)
        if is_plain and not set(stored([node])) & wanted:
            continue
        wanted |= names(node)
        kept.insert(0, node)
    return kept


def _function(kernel: ast.FunctionDef, name: str, body: list[ast.stmt]) -> ast.FunctionDef:
    """A kernel of the same parameters, as far as its body reads them, with those of parts."""
    wanted = {found for node in body for found in names(node)}
    own = [argument for argument in kernel.args.args if argument.arg in wanted]
    pointers = [argument for argument in own if argument.annotation is None]
    constants = [argument for argument in own if argument.annotation is not None]
    constexpr = ast.parse("tl.constexpr", mode="eval").body
    every = [*pointers, ast.arg("parts_ptr"), *constants, ast.arg("PARTS", constexpr)]
    arguments = ast.arguments([], every, None, [], [], None, [])
    return ast.FunctionDef(name, arguments, body, kernel.decorator_list, None, None)


def _launched(
    program: TritonProgram,
    launch: Launch,
    kernel: ast.FunctionDef,
    functions: tuple[ast.FunctionDef, ast.FunctionDef],
    sums: _Sums,
    constant: str,
) -> Edit:
    """Room for parts and the launches of both kernels, in the place of that of one."""
    given, room = passed(kernel, launch), program.free("parts")
    tensor = next(iter(given.values()))
    (count,) = launch.counts
    grids = f"({ast.unparse(count)}, {constant})", f"({ast.unparse(count)},)"
    texts = []
    for function, grid in zip(functions, grids, strict=True):
        own = [argument for argument in function.args.args if argument.arg in given]
        values = [given[a.arg] for a in own if a.annotation is None]
        options = [k for k in launch.call.keywords if k.arg not in given or k.arg in {
            a.arg for a in own
        }]  # fmt: skip
        call = ast.Call(
            ast.Subscript(ast.Name(function.name), ast.parse(grid, mode="eval").body),
            [*values, ast.Name(room)],
            [*options, ast.keyword("PARTS", ast.Name(constant))],
        )
        texts.append(program.replaced_call(launch, call))
    rows = next(
        ast.unparse(node.value)
        for node in sums.before
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == _COUNT
    )
    indent = "\n" + " " * launch.statement.col_offset
    made = (
        f"{room} = torch.empty({indent}    ({len(sums.names)}, {constant}, {rows}), "
        f"device={ast.unparse(tensor)}.device, dtype=torch.float32{indent})"
    )
    return Edit(texts[0].start, texts[0].end, indent.join([made, *(e.text for e in texts)]))
