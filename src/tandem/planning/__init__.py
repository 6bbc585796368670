"""Planning: choosing an action by lookahead with Monte Carlo tree search (`mcts`). May import the
lowest layer and `math`."""

from tandem.planning.mcts import (
    BaseNode,
    Node,
    run_mcts_search,
    select_action_after_search,
    visit_shares,
)

__all__ = ["BaseNode", "Node", "run_mcts_search", "select_action_after_search", "visit_shares"]
