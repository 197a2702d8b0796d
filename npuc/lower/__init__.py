"""From static fused graphs to tasks: kernels, tile sizes, and where each value lives."""
