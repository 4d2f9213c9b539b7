// Package train is a small data-parallel trainer of real networks: dense, convolutional and transformer networks in
// float32. Its nodes are goroutines with replicas of their own, which sum their gradients layer by layer around a
// ring. Package checkpoint and forward-only training are measured with it; it does not compete with PyTorch.
//
// A network comes from MLP, Convnet or Transformer, or from NewNetwork and layers of package train/layer; data from package
// train/data, or any Data. New makes a trainer with a replica of the network on every node, Step trains one step. SaveTo
// has the steps saved to a checkpoint.File as they go, Restore goes on from one. The Examples show both.
//
// schedule.go is the schedule of a step: while a layer's gradients are exchanged, those of the layer before it are
// computed; the layer is updated and saved while the rest goes on. A node's gradient is weighted by its samples, so
// unequal micro-batches train like one node with the whole batch.
//
// Without a trainer, a Network computes losses (Network.Loss, Pass), and MeasureStep measures one step under a memory
// budget.
//
// Every result is a function of configuration and data, to the bit, whatever GOMAXPROCS is and whether or not work
// overlaps; a resumed run gives the bits of an uninterrupted one. Times, and the steps that an automatic interval
// saves, differ between runs.
//
// The schedule is the method of Huawei Cloud's patent "model training method and apparatus".
package train
