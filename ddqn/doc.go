// Package ddqn is a dueling Q-network for environments in which many rows act at the same time: one row of features
// per acting entity, one set of weights for all of them, several objectives, and preferences among the objectives that
// may change at run time. It knows nothing of clusters. Package learn trains the networks.
//
// A Network has a Spec. An Actor scores rows with a copy of the weights, Greedy chooses an action by the preferences.
// Save and Load write networks to a file and read them. The caller puts the preference weights into the features, too.
//
// Results do not depend on the number of rows scored at a time, nor on their order. The same input gives the same bits
// on every processor of the same kind, because each sum is taken in one fixed order without fused multiply-add (see
// internal/matrix). There is no clock and no source of randomness in this package but the generator that NewNetwork is
// given.
package ddqn
