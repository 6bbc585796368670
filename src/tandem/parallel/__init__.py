"""Environments that are stepped in workers: `pool` is one collector made of many, and
`worker_group` starts lost workers again. May import lower layers, up to `collect`."""
