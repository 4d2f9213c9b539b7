// Package train is a small data-parallel trainer of real networks: dense, convolutional and transformer networks in
// float32. Its nodes are goroutines with replicas of their own, which sum their gradients layer by layer around a
// ring. Checkpoints, plans and forward-only training run real work with it; it does not compete with PyTorch.
//
// In the order of use: MLP, Convnet or Transformer builds a network, or NewNetwork joins layers of package train/layer.
// Data come from package train/data, or are any Data. New makes a trainer with a replica of the network on every node,
// and Step trains one step. SaveTo saves the steps that follow to a checkpoint.File; Restore continues from one. The
// Examples show both.
//
// schedule.go is the schedule of a step: while a layer's gradients are exchanged, those of the layer before it are
// computed; each layer is updated and saved while the rest of the step goes on. A node's gradient is weighted by its
// samples, so unequal micro-batches train like one node with the whole batch.
//
// Without a trainer, a Pass computes losses.
//
// Every result is a function of configuration and data, to the bit, whatever GOMAXPROCS is and whether or not work
// overlaps; a resumed run gives the bits of an uninterrupted one. Times, and the steps that an automatic interval
// saves, differ between runs.
//
// The schedule is the method of Huawei Cloud's patent "model training method and apparatus".
package train
