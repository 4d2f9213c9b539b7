// Package train is a small data-parallel trainer of real networks: dense, convolutional and transformer networks in
// float32, on nodes that are goroutines with replicas of their own, which sum their gradients layer by layer around a
// ring. It is what checkpoint and forward-only training are measured with; it does not compete with PyTorch.
//
// In the order of use:
//
//	net, err := train.MLP(64, 128, 10)                 // or Convnet, Transformer, NewNetwork
//	digits, err := data.Digits()                       // package train/data; or any Data
//	t, err := train.New(net, digits, train.Config{
//		MicroBatches: []int{24, 8},                    // two nodes, the first one three times as fast
//		Optimizer:    train.Optimizer{Method: train.AdamW, Rate: 0.001},
//	})
//	f, err := checkpoint.Create("run.ckpt", t.Arrays(), checkpoint.Options{}) // if it is to be saved
//	err = t.SaveTo(f, train.SaveConfig{})              // after Open instead: t.Restore(f) first
//	for t.Steps() < 1000 {
//		loss, err := t.Step(ctx)
//	}
//	err = errors.Join(t.Save(ctx), t.Close(), f.Close())
//
// schedule.go is the schedule of a step: while a layer's gradients are exchanged, those of the layer before it are
// computed; the layer is updated and saved while the rest goes on. A node's micro-batch weighs as much as it has
// samples, so uneven ones train like one node with the whole batch.
//
// Without a trainer, a Network computes losses (Network.Loss, Pass), and MeasureStep measures one step under a memory
// budget.
//
// Every result is a function of configuration and data, to the bit, whatever GOMAXPROCS is and whether or not work
// overlaps; a run that is resumed gives the bits of one that was not interrupted. Times and which steps are saved at
// an automatic interval are not.
//
// The schedule is the method of Huawei Cloud's patent "model training method and apparatus".
package train
