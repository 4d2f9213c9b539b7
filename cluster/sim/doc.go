// Package sim runs the rounds of a mixed cluster whose nodes drift, slow down, fail
// and return, in simulated time.
//
//	s := sim.New(c, conditions, seed)
//	truth := s.Truth()                // for oracles and rewards only
//	report, err := s.Round(ctx, plan) // one round by the rule of the plan
//
// The Example is a whole program.
//
// It is a discrete-event simulator: a heap of events, integer nanoseconds,
// and a sequence number that breaks ties, so a seed and a sequence of sizes give the
// same reports bit for bit. Conditions advance once per round and node from a random
// stream of the node's own (a rack's stream is copied to each of its nodes); patterns and traces by time (cluster.Pattern)
// advance with the clock, within rounds too. A node's slowdown, noise and chance of
// failure in round r, and its slowdown by patterns at time t, therefore do not depend on the sizes of earlier rounds, and two policies under one seed face the
// same cluster: their differences are paired. (Whether a node is present may depend on the sizes: a node that is
// still busy cannot fail with this round's work.)
package sim
