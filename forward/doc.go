// Package forward trains networks by forward passes alone: no gradient, no stored activations, no optimizer state. In most
// steps a processor sends 16 bytes.
//
// All processors of a run share a Config. Each Processor has a Model, the data, the first weights and a Bus; its method Run
// trains. The Example does so in one process.
//
// # Words
//
//   - A processor has a rank, counted from 0. Ranks 2p and 2p+1 are pair p: the even rank and the odd rank of the pair.
//     A pair counts in a step as a whole or not at all.
//   - A direction is a random vector of +1 and -1, one entry for each weight. It is computed from a counter (Philox)
//     whenever it is needed, and never stored. Directions of a step share random signs, so that one sweep over the weights
//     moves them along all (ring).
//   - A trial moves all weights by epsilon along a direction. The processor computes the losses of two inputs (two
//     batches of examples) under these weights, and takes the trial back exactly.
//   - An estimator says who tries what. With Paired, the even rank of a pair tries a direction and the odd rank its
//     opposite; half the difference of their losses measures the slope along the direction. With Each, every rank tries
//     a direction of its own, all on the same examples; the slope is the rank's loss minus the mean of all ranks'.
//   - An increment is how far a step moves the weights along one direction.
//   - A commit is the outcome of a step: which pairs counted, and the increments. A block is 64 commits, or a run's last
//     ones, with a hash of the weights after them; blocks make up the log.
//
// # A step
//
// Every processor tries its direction and sends a Frame with its two losses to all processors, itself included. Frames
// reach all processors in one order (Bus): within a process through Memory, between processes through package wire. From
// this order alone every processor decides the same commit, and applies it. Weights are integers, so a trial leaves no
// trace and the order of moves does not matter: all processors have the same bits, and so does a replay of the log.
//
// A pair that takes longer than one step is late: it counts in the step in which its second half arrives, along the
// direction that it tried. A processor that has waited long enough asks to go on without the missing pairs; the first
// such frame decides for all.
//
// docs/reference/forward-protocol.md defines every bit.
//
// The method is that of Biren's patent on distributed training for forward propagation of neural networks; the estimate is
// that of simultaneous perturbation (Spall 1992), as MeZO uses it (Malladi et al., NeurIPS 2023). Each is close to FZOO
// (Dang et al. 2025), without FZOO's pass with unmoved weights. Deviations: several directions in a step, each averaged
// by itself; weights in fixed point; signs instead of normal numbers.
package forward
