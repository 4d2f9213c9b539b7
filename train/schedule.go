package train

import "sync"

// This file is the schedule of a step, which is the method: layer by layer from the last one,
//
//	node 0   backward 3 | backward 2 | backward 1 |
//	node 1   backward 3 | backward 2 | backward 1 |
//	ring                | exchange 3 | exchange 2 | exchange 1 |
//	both                             | update 3   | update 2   | update 1 |
//	node 0                                        | save 3     | save 2   | save 1 | commit
//	                                                             next step's forward ...
//
// Each node has two goroutines: one computes gradients, one exchanges, updates and hands over to the checkpoint what
// the first has finished. The checkpoint writes in the background of both, and of the next step, whose update of a
// layer waits until that layer was read.
//
// It is the method of Huawei Cloud's patent "model training method and apparatus".

// overlapped is a step of a node where a layer is exchanged while the next one's gradients are computed.
func (t *Trainer) overlapped(n *node) {
	finished := make(chan int, len(t.net.layers))
	var rest sync.WaitGroup
	rest.Go(func() {
		for layer := range finished {
			t.exchange(n, layer)
			t.update(n, layer)
			t.save(n, layer)
		}
	})
	t.forward(n)
	for layer := len(t.net.layers) - 1; layer >= 0; layer-- {
		t.backward(n, layer)
		if n.gradients.Layers[layer] != nil {
			finished <- layer
		}
	}
	close(finished)
	rest.Wait()
}

// sequential is the same work, one thing after the other.
func (t *Trainer) sequential(n *node) {
	t.forward(n)
	for layer := len(t.net.layers) - 1; layer >= 0; layer-- {
		t.backward(n, layer)
	}
	t.each(n, t.exchange)
	t.each(n, t.update)
	t.each(n, t.save)
}

// each does this with every layer that has parameters, from the last one.
func (t *Trainer) each(n *node, do func(n *node, layer int)) {
	for layer := len(t.net.layers) - 1; layer >= 0; layer-- {
		if n.gradients.Layers[layer] != nil {
			do(n, layer)
		}
	}
}

func (t *Trainer) forward(n *node) {
	defer t.record(n.number, -1, Forward)()
	n.loss = n.pass.run(n.weights, n.batch, t.scale)
}

func (t *Trainer) backward(n *node, layer int) {
	defer t.record(n.number, layer, Backward)()
	n.pass.Backward(layer, n.weights, n.gradients)
}

// exchange sums the layer's gradients over all nodes.
func (t *Trainer) exchange(n *node, layer int) {
	defer t.record(n.number, layer, Exchange)()
	t.ring.sum(n.number, n.gradients.Layers[layer])
}

// update changes the layer's weights, once the save of the step before has read them.
func (t *Trainer) update(n *node, layer int) {
	if n.number == 0 {
		t.saver.ready(layer)
	}
	defer t.record(n.number, layer, Update)()
	var moments [][]float32
	for _, m := range n.moments {
		moments = append(moments, m.Layers[layer])
	}
	t.config.Optimizer.Update(t.step+1, n.weights.Layers[layer], n.gradients.Layers[layer], moments...)
}

// save hands the layer's weights and moments to the checkpoint. Replicas are equal, so node 0 saves its own.
func (t *Trainer) save(n *node, layer int) {
	if n.number == 0 {
		t.saver.write(layer)
	}
}
