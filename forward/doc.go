// Package forward trains networks by forward passes alone: no gradient, no activations kept, no optimizer state, and 16
// bytes sent by a processor in a step.
//
// A Config is what all processors of a run agree on; each Processor has a Model, the data, the weights to start from and a
// Bus, and Run trains. The Example does so in one process.
//
// Processors work in pairs. Rank 2p computes the losses of two inputs under weights + epsilon z, rank 2p+1 those of the
// same inputs under weights - epsilon z. z is made from a counter whenever it is needed and never stored. From all
// losses, in the order of ranks, every processor computes the slope along each direction, takes back what it tried and
// moves along all directions by their slopes. Weights are whole numbers, so that taking back is exact and the order of moves
// does not show: all processors hold the same bits, and so does anybody who replays the Log.
//
// Frames reach all processors in one order (Bus): within a process by Memory, between processes by package wire. The
// outcome of a step is a function of that order alone. A pair is atomic: if one half is missing, others propose to go on without
// it, and the first proposal decides for all.
//
// The method is that of Biren's patent on distributed training for forward propagation of neural networks; the estimate is
// that of simultaneous perturbation (Spall 1992), as MeZO uses it (Malladi et al., NeurIPS 2023). Departures: several
// directions in a step, each averaged by itself; weights in fixed point; signs instead of normal numbers by default.
package forward
