"""Worker processes and Ray actors that step environments: `pool` is one collector made of many,
and `worker_group` starts lost workers again. May import the rooms below, from the ground to
`collect`."""
