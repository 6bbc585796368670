"""The replay buffer: a ring of transitions (`buffer`), a buffer of sequences (`sequences`), the
samplers that draw from them, hindsight. NumPy only. May import lower layers."""
