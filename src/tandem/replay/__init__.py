"""Replay buffers: a ring of transitions (`buffer`), a buffer of sequences (`sequences`), their
samplers, and hindsight. NumPy only. May import lower layers."""
