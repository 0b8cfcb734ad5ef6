"""The judge behind HTTP: jobs that outlive every process, for training loops and other clients."""

HTTP_PACKAGES = ("fastapi", "starlette", "uvicorn", "pydantic")
"""What the extras `serve` and `ui` bring."""
