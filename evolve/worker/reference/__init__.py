"""A task's file: its cases, inputs and models, as judge and runner make them."""
