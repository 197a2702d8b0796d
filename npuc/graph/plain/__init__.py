"""Attention as the model writes it, over all slots of its caches: where that is provably right, and the rewrite."""
