"""Numbers of an agent that adapt during training: the rules that change them (`methods`), the
values that rules can change (`adjustable`), the numbers that compiled code takes as inputs
(`loss_inputs`), and those that it treats as constants (`frozen_constants`)."""
