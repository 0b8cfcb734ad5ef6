"""The scripted judge of the library's tests."""

from tests.library.conftest import judge

__all__ = ["judge"]
