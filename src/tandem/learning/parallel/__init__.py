"""Stepping of environments in workers: `pool` combines their collectors into one, and
`worker_group` restarts lost workers. May import lower layers, up to `collect`."""
