"""Numbers of an agent that move while it trains: the rules that move them (`methods`) and where
they stand (`adjustable`); which of them compiled code takes as inputs (`loss_inputs`), and which
it had taken for constant (`frozen_constants`)."""
