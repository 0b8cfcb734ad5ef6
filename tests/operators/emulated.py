"""Languages whose functions are those of torch in tests without a GPU."""

from tests.operators import cute_emulation, cutile_emulation, tilelang_emulation

EMULATED = {
    "cute": cute_emulation,
    "cutile": cutile_emulation,
    "tilelang": tilelang_emulation,
}
