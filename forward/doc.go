// Package forward trains networks by forward passes alone: no gradient, no stored activations, no optimizer state, and 16
// bytes sent by a processor in a step.
//
// All processors of a run share a Config. Each Processor has a Model, the data, the first weights and a Bus, and Run
// trains. The Example does so in one process.
//
// With the Estimator Paired, rank 2p computes the losses of two inputs under weights + epsilon z, and rank 2p+1 those of
// the same inputs under weights - epsilon z. With Each, every rank r adds a direction z of its own. z is computed from a
// counter whenever it is needed, and not stored. From all losses, in the order of ranks, every processor estimates the
// slope along each direction, takes back its trial and moves along all directions by their slopes. Weights are integers,
// so taking back is exact and the order of moves does not matter: all processors have the same bits, and so does a
// replay of the log.
//
// Frames reach all processors in one order (Bus): within a process through Memory, between processes through package wire.
// The outcome of a step is a function of that order alone. A pair counts as a whole: if one half is missing, others propose
// to go on without it, and the first proposal decides for all.
//
// The method is that of Biren's patent on distributed training for forward propagation of neural networks; the estimate is
// that of simultaneous perturbation (Spall 1992), as MeZO uses it (Malladi et al., NeurIPS 2023). Departures: several
// directions in a step, each averaged by itself; weights in fixed point; signs instead of normal numbers by default.
package forward
