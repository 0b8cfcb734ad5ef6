"""Rows that a kernel reads in several loops, read once and held in registers."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from operators.local.structure.program import (
    Choices,
    Launch,
    NotApplicable,
    TritonProgram,
    assigned,
    calls,
    names,
    parameters,
    parse,
    stored,
)
from operators.local.structure.values import Values

_MAX_ROW = 32768  # elements: 32 registers of each of 1024 threads
_ELEMENTS = 65536  # of a block
_PER_WARP = 512
_WARPS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The dimension that all loops go along.

    Its parameter for blocks, its size by name and as a number, and a loop's name for where it is.
    """

    block: str
    length: str
    size: int
    offset: str

    @property
    def whole(self) -> int:
        """The block that holds a row."""
        return 1 << max(self.size - 1, 0).bit_length()


def hold_rows(program: TritonProgram, name: str) -> str:
    """Make the block as long as the row: its loops go round once, so no row is read again."""
    kernel, launches = program.kernel(name), program.launches(name)
    rows = _rows(kernel)
    _require_masks(kernel, rows)
    body, merged = _merged(list(_unrolled(kernel.body, rows)), set(parameters(kernel)))
    if not merged:
        raise NotApplicable("no row is read twice")
    kernel.body = [parse(f"{rows.block}: tl.constexpr = {rows.whole}"), *body]
    kernel.args.args = [a for a in kernel.args.args if a.arg != rows.block]
    edits, gone = [program.replaced_kernel(kernel)], set()
    for launch in launches:
        constant = launch.option(rows.block)
        if not isinstance(constant, ast.Name):
            raise NotApplicable(f"a launch passes no constant for {rows.block}")
        if program.is_only_in(constant.id, [one.call for one in launches]):
            gone.add(constant.id)
        options = [option for option in launch.call.keywords if option.arg != rows.block]
        call = ast.Call(launch.call.func, launch.call.args, options)
        edits.append(program.replaced_call(launch, call))
    return program.written(edits, _fitting(program, launches, rows), gone)


def _rows(kernel: ast.FunctionDef) -> _Rows:
    sizes = {
        node.targets[0].id: node.value.value
        for node in kernel.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
    }
    found = set()
    for node in ast.walk(kernel):
        if not isinstance(node, ast.For):
            continue
        if any(
            isinstance(part, ast.For | ast.If) for child in node.body for part in ast.walk(child)
        ):
            raise NotApplicable("a loop holds another one, or a branch")
        match node.iter:
            case ast.Call(
                args=[ast.Constant(value=0), ast.Name(id=size), ast.Name(id=block)], keywords=[]
            ) if size in sizes and isinstance(node.target, ast.Name):
                found.add(_Rows(block, size, sizes[size], node.target.id))
            case _:
                raise NotApplicable("a loop does not go over blocks of a known size")
    if not found:
        raise NotApplicable("it has no loop")
    if len(found) > 1:
        raise NotApplicable("its loops do not go along one dimension")
    (rows,) = found
    if rows.size > _MAX_ROW:
        raise NotApplicable(f"rows of {rows.size} elements do not fit into registers")
    if rows.block not in parameters(kernel):
        raise NotApplicable(f"{rows.block} is no parameter")
    return rows


def _require_masks(kernel: ast.FunctionDef, rows: _Rows) -> None:
    """If the block is longer than the row, all that a loop touches has to be masked."""
    if rows.whole == rows.size:
        return
    for loop in (node for node in kernel.body if isinstance(node, ast.For)):
        masks = _masks(loop, rows)
        for called, call in (found for part in loop.body for found in calls(part)):
            if called not in ("tl.load", "tl.store"):
                continue
            given = [*call.args[1:], *(option.value for option in call.keywords)]
            along = names(call.args[0]) & _varying(loop)
            if along and not any(names(argument) & masks for argument in given):
                raise NotApplicable(f"{ast.unparse(call)} has no mask along the row")
        inner = set(stored(loop.body))
        for node in loop.body:
            for target in stored([node]):
                if _is_carried(target, loop, inner) and not _is_masked(node, masks):
                    raise NotApplicable(f"{target} takes in what lies beyond the row")


def _is_masked(node: ast.stmt, masks: set[str]) -> bool:
    """Whether it is `name = tl.where(mask, ...)`."""
    found = assigned(node)
    return (
        found is not None
        and ast.unparse(found[1]).startswith("tl.where(")
        and bool(names(found[1]) & masks)
    )


def _is_carried(target: str, loop: ast.For, inner: set[str]) -> bool:
    """Whether a name is read in the loop before it is assigned there."""
    for node in loop.body:
        if target in names(node):
            return target in inner
        if target in stored([node]):
            return False
    return False


def _masks(loop: ast.For, rows: _Rows) -> set[str]:
    """Names that are compared with the size of the row."""
    found: set[str] = set()
    for node in loop.body:
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Compare(ops=[ast.Lt()], comparators=[ast.Name(id=rows.length)]),
            ) if stored(loop.body).count(name) == 1:
                found.add(name)
    return found


def _varying(loop: ast.For) -> set[str]:
    """Names in the loop that depend on where it is."""
    assert isinstance(loop.target, ast.Name)
    found = {loop.target.id}
    for node in loop.body:
        if names(node) & found:
            found |= set(stored([node]))
    return found


def _unrolled(body: list[ast.stmt], rows: _Rows) -> Iterator[ast.stmt]:
    """Loops go round once."""
    for node in body:
        if isinstance(node, ast.For):
            yield parse(f"{rows.offset} = tl.full([], 0, tl.int32)")
            yield from node.body
        else:
            yield node


def _merged(body: list[ast.stmt], pointers: set[str]) -> tuple[list[ast.stmt], int]:
    """Loads of the same elements become one; the body, and how many were saved."""
    written = {
        name for node in body for called, call in calls(node) if called == "tl.store"
        for name in names(call.args[0]) & pointers
    }  # fmt: skip
    values, held, kept = Values(), dict[str, str](), list[ast.stmt]()
    saved = 0
    times = stored(body)
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call() as call) if (
                ast.unparse(call.func) == "tl.load"
            ):
                other = [option.value for option in call.keywords if option.arg == "other"]
                key = ", ".join(values.text(argument) for argument in (*call.args, *other))
                fixed = not names(call.args[0]) & written and times.count(name) == 1
                values.assign(name, call)
                if fixed and key in held:
                    kept.append(parse(f"{name} = {held[key]}"))
                    values.bind(name, held[key])
                    saved += 1
                    continue
                if fixed:
                    held[key] = name
            case _:
                name, value = assigned(node) or ("", None)
                for target in stored([node]):
                    values.assign(target, value if value and target == name else None)
        kept.append(node)
    return kept, saved


def _fitting(program: TritonProgram, launches: list[Launch], rows: _Rows) -> dict[str, Choices]:
    """Warps for a block that holds a row, and of the numbers of rows those that fit."""
    found = {}
    for launch in launches:
        warps, block = launch.option("num_warps"), launch.option("XBLOCK")
        if isinstance(warps, ast.Name):
            usual = min(_WARPS, key=lambda n: abs(n * _PER_WARP - rows.whole))
            around = tuple(n for n in _WARPS if usual / 4 <= n <= usual * 4)
            found[warps.id] = Choices(usual, around)
        if isinstance(block, ast.Name) and (choices := program.choices.get(block.id)):
            few = tuple(n for n in choices if int(n) * rows.whole <= _ELEMENTS) or choices[:1]
            found[block.id] = Choices(few[0], few)
    return found
