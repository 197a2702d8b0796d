"""From a task graph to a program: addresses, dependencies, barriers. `schedule` is the one door."""
