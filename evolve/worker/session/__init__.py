"""State of a judge between evaluations: tasks, processes, memory of the device."""
