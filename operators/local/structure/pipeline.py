"""Loops that load ahead."""

import ast

from operators.local.structure.program import Choices, NotApplicable, TritonProgram, calls

_STAGES = (1, 2, 3, 4)
_FIRST = 2
_PARAMETER = "STAGES"


def pipeline_loops(program: TritonProgram, name: str) -> str:
    """Give every counting loop of a kernel that loads a number of stages, which is a tunable.

    Loops with `tl.dot` have their stages from the launch.
    """
    kernel, launches = program.kernel(name), program.launches(name)
    loops = [
        node
        for node in ast.walk(kernel)
        if isinstance(node, ast.For)
        and isinstance(node.iter, ast.Call)
        and ast.unparse(node.iter.func) in ("range", "tl.range")
        and any(called == "tl.load" for part in node.body for called, _ in calls(part))
    ]
    if not loops:
        raise NotApplicable("no loop loads anything")
    if any(called == "tl.dot" for called, _ in calls(kernel)):
        raise NotApplicable("its launch says how far products load ahead")
    for loop in loops:
        assert isinstance(loop.iter, ast.Call)
        loop.iter.func = ast.parse("tl.range", mode="eval").body
        if any(option.arg == "num_stages" for option in loop.iter.keywords):
            raise NotApplicable("its loops have stages already")
        loop.iter.keywords.append(ast.keyword("num_stages", ast.Name(_PARAMETER)))
    if _PARAMETER in {argument.arg for argument in kernel.args.args}:
        raise NotApplicable(f"it has a parameter {_PARAMETER} already")
    kernel.args.args.append(ast.arg(_PARAMETER, ast.parse("tl.constexpr", mode="eval").body))
    constant = program.free(f"{name.removesuffix('_kernel').upper()}_{_PARAMETER}")
    edits = [program.replaced_kernel(kernel)]
    for launch in launches:
        options = [*launch.call.keywords, ast.keyword(_PARAMETER, ast.Name(constant))]
        call = ast.Call(launch.call.func, launch.call.args, options)
        edits.append(program.replaced_call(launch, call))
    return program.written(edits, {constant: Choices(_FIRST, _STAGES)})
