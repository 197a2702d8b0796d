"""Positions and masks, recognised by evaluation: what the step alone decides becomes tables, masks and constants."""
