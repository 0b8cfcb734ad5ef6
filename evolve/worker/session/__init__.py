"""What a judge keeps from one evaluation to the next: tasks, processes, memory of the device."""
