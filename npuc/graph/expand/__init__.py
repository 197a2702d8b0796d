"""Exporters' fused operators, written out in standard ones: what follows needs to know one form only."""
