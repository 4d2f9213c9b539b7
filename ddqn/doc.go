// Package ddqn is a Double DQN for environments in which many rows act at the same time: one row of features
// per acting entity, one set of weights for all of them, several objectives, and preferences among the
// objectives that may change at run time. It is built on Gorgonia and knows nothing of clusters.
//
// A Network has a Spec. An Actor scores rows with a copy of the weights, a Replay keeps observations, actions and rewards, a
// Learner trains the network by gradient steps on the replay, and Sync updates the actor's copy. The Example shows them in
// this order; Save and Load write networks to a file and read them.
//
// What it computes, and where it comes from:
//
//   - Double DQN (van Hasselt, Guez and Silver, AAAI 2016): the online network chooses the action of the later
//     state, the target network values it. See learner.go.
//   - Dueling heads (Wang et al., ICML 2016), vector-valued: Q[a][r] = V[r] + A[a][r] - mean over a of A[a][r].
//     See dueling.go.
//   - n-step returns (Sutton 1988), uncorrected for the actions in between, as in Rainbow (Hessel et al. 2018);
//     a terminal state ends the bootstrap, a time limit does not. See replay.go and sample.go.
//   - Value decomposition (VDN: Sunehag et al., AAMAS 2018) with the mean in place of the sum, so that the value
//     does not grow with the number of rows; chosen per objective. See loss.go.
//   - Soft target updates (Lillicrap et al. 2016), Huber loss, Adam (Kingma and Ba 2015) with a clipped global
//     norm. See network.go, loss.go and optimizer.go.
//
// The caller puts preference weights into the features. The package also gets them to choose actions, as the argmax
// over a of the weighted sum over r of Q[a][r].
//
// Results do not depend on the machine: the same seed and input give the same bits on every processor, because
// each sum is taken in one fixed order without fused multiply-add (see internal/matrix). This does not hold in a build
// with the tag openblas. There is no clock and no global source of randomness in this package.
package ddqn

// Gorgonia keeps raw pointers to Go memory and refuses to start under a Go release that it does not know. This
// module allows newer releases: their garbage collector does not move objects either.
import _ "go4.org/unsafe/assume-no-moving-gc"
