"""Mixtures of experts: whatever form an exporter gave them, one operator npuc.MoE."""
