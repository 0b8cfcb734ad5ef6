"""Programs that answer prompts: any that prints an answer, and what coding agents build on."""
