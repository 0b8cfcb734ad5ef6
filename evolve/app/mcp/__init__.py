"""The MCP server: the judge and the runs of a database as tools of a coding agent.

Imported by `evolve mcp` only: it needs the extra `mcp`.
"""

MCP_PACKAGES = ("mcp", "mcp_types", "fastapi", "starlette", "uvicorn", "pydantic")
