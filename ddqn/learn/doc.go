// Package learn trains the networks of package ddqn by Double DQN, with gradients from Gorgonia. Only programs that train
// need it.
//
// A Replay keeps observations, actions and rewards; a Learner trains a network by gradient steps on the replay; SaveState
// and LoadState interrupt and resume a training. The Example shows them in this order.
//
//   - Double DQN (van Hasselt, Guez and Silver, AAAI 2016): the online network chooses the action of the later
//     state, the target network values it. See learner.go.
//   - Dueling heads (Wang et al., ICML 2016), vector-valued. See ddqn/internal/dueling.
//   - n-step returns (Sutton 1988), uncorrected for the actions in between, as in Rainbow (Hessel et al. 2018);
//     a terminal state ends the bootstrap, a time limit does not. See replay.go.
//   - Soft target updates (Lillicrap et al. 2016), Huber loss, Adam (Kingma and Ba 2015) with a clipped global
//     norm. See learner.go, loss.go and optimizer.go.
package learn

import (
	// Gorgonia keeps raw pointers to Go memory and refuses to start under a Go release that it does not know. This
	// module allows newer releases: their garbage collector does not move objects either.
	_ "go4.org/unsafe/assume-no-moving-gc"
)
