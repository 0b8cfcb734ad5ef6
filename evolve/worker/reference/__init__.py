"""A task's file: its cases, inputs and models, as referee and runner make them."""
