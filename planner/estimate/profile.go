package estimate

import (
	"errors"
	"fmt"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/planner/layerprofile"
)

// What training reaches of a data sheet. Fitted to the layers of Llama in 16 bits that the authors of Cephalo measured on
// A100 and A6000 (github.com/benson-guo/cephalo, data/model_latencies.json); other cards and runs were not used.
const (
	reachedFLOPS     = 0.65  // of the nameplate, by a matrix product
	reachedAttention = 0.3   // of the nameplate, by FlashAttention
	reachedBandwidth = 0.5   // of the memory's
	launch           = 12e-6 // seconds of a kernel beside its work
	// The least seconds of a layer's forward pass: Python cannot issue its kernels quicker. Fitted to the runs of vTrain (below)
	// with a hidden size of 1,024; those of 2,048 were not used.
	host = 1.1e-3
	// What kernels keep beside tensors that are counted: so much that no measured plan took more memory than predicted.
	beside = 1.05
)

// sustained is how much of its boost clock, by which data sheets count, a card of at most 150 W has the power for while it multiplies
// matrices in 16 bits: its base clock, of NVIDIA's product briefs. A T4 then reaches 24 of its 65 teraflops
// (forums.developer.nvidia.com/t/about-gpu-peak-performance/264462).
var sustained = map[string]float64{"a10": 885.0 / 1695, "l4": 795.0 / 2040, "t4": 585.0 / 1590}

// A collective takes so many seconds beside its transfers: NCCL's all-reduces of 1 MB on 2 to 8 A100 joined by NVLink, as
// the authors of vTrain measured them (github.com/VIA-Research/vTrain, trace/a100).
func latency(devices int) float64 { return 20e-6 + 8e-6*float64(devices) }

// Options say how a model is trained.
type Options struct {
	Tokens                        int     // of a sample; 0: Longest, at most 4096
	Weights, Gradients, Optimizer float64 // bytes of a parameter; activations are as wide as weights
	Eager                         bool    // attention keeps its scores; default: FlashAttention
}

// microBatches of the profile. What lies between is interpolated.
var microBatches = []int{1, 2, 4, 8, 16, 32}

// Profile estimates the layers of a model on the devices of a cluster: an embedding, the layers, and what predicts the
// token. Devices are looked up in the catalogue by their names up to an @. Errors wrap ErrModel.
func (m *Model) Profile(t *cluster.Topology, catalogue *profile.Catalogue, o Options) (*layerprofile.Profile, error) {
	if o.Tokens == 0 {
		o.Tokens = min(m.Longest, 4096)
	}
	if o.Tokens > m.Longest {
		return nil, fmt.Errorf("%w: samples of %d tokens; %s takes at most %d", ErrModel, o.Tokens, m.Name, m.Longest)
	}
	h, s := float64(m.Hidden), float64(o.Tokens)
	block, experts := m.blockParameters()
	middle := layerprofile.Layer{Name: "block", Parameters: block, Output: o.Weights * s * h, Context: 2 * o.Weights * s * float64(m.KV*m.Head)}
	if m.Experts > 0 {
		middle.Experts, middle.ExpertParameters, middle.ExpertBytes = m.Experts, experts, o.Weights*s*h*float64(m.Active)
	}
	first := layerprofile.Layer{Name: "embedding", Parameters: m.embedding(), Output: middle.Output}
	last := layerprofile.Layer{Name: "head", Parameters: (float64(m.Vocabulary) + 1) * h}
	if m.Tied {
		last.Tied = float64(m.Vocabulary) * h
	}
	p := &layerprofile.Profile{Model: m.Name}
	for i := range t.Classes {
		c := &t.Classes[i]
		d, err := sheet(catalogue, c.Device)
		if err != nil {
			return nil, err
		}
		if c.PerMachine > 1 && len(c.Inside.Rates) == 0 {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s: the cluster file has no bandwidth between the devices of a machine (inside); it costs no time", c.Device))
		}
		for degree := 1; degree <= c.PerMachine && m.divides(degree); degree *= 2 {
			if c.PerMachine%degree != 0 {
				break
			}
			for _, b := range microBatches {
				k := &kernels{Model: m, o: &o, tokens: s * float64(b), tensor: float64(degree), flops: 1e12 * d.TFLOPS32, bandwidth: 1e9 * d.Bandwidth * reachedBandwidth}
				if o.Weights == 2 {
					k.flops = 1e12 * d.TFLOPS16
					if clock, limited := sustained[cluster.Card(c.Device)]; limited {
						k.flops *= min(1, clock/reachedFLOPS)
					}
				}
				if degree > 1 {
					bytes := o.Weights * h * k.tokens
					k.allReduce = 2*(k.tensor-1)*t.Within(i).Seconds(bytes/k.tensor) + t.Within(i).Start()
					if c.Inside.Latency == 0 && c.Inside.Start == 0 {
						k.allReduce += latency(degree)
					}
				}
				for layer, run := range map[*layerprofile.Layer]layerprofile.Run{&first: k.embedded(), &middle: k.block(), &last: k.head()} {
					run.Device, run.Tensor, run.MicroBatch = c.Device, degree, b
					run.Update = layer.Parameters / k.tensor * 2 * (o.Weights + o.Gradients + o.Optimizer) / k.bandwidth // all is read and written
					layer.Runs = append(layer.Runs, run)
				}
			}
		}
	}
	p.Layers = append(p.Layers, first)
	for range m.Layers {
		p.Layers = append(p.Layers, middle)
	}
	p.Layers = append(p.Layers, last)
	return p, p.Finish(m.Name)
}

// sheet is the data sheet of a device.
func sheet(catalogue *profile.Catalogue, device string) (profile.Device, error) {
	d, ok := catalogue.Device(cluster.Card(device))
	if !ok {
		_, err := catalogue.Lookup(cluster.Card(device), "")
		var unknown *profile.UnknownError
		if errors.As(err, &unknown) && len(unknown.Nearest) > 0 {
			return d, fmt.Errorf("%w: no data sheet of %.60q is known; did you mean %v? evenkeel profiles devices lists all; measure the layers on others", ErrModel, device, unknown.Nearest)
		}
		return d, fmt.Errorf("%w: no data sheet of %.60q is known; evenkeel profiles devices lists those that are; measure the layers on others", ErrModel, device)
	}
	return d, nil
}

// divides says whether so many devices can share every matrix. Heads with keys and values may be copied.
func (m *Model) divides(degree int) bool {
	return m.Heads%degree == 0 && (m.KV%degree == 0 || degree%m.KV == 0) && m.Inner%degree == 0 && m.Shared%degree == 0
}

// kernels adds up the passes of a layer on a device, one of tensor that divide it.
type kernels struct {
	*Model
	o                        *Options
	tokens, tensor           float64
	flops, bandwidth         float64 // a second; flops: of the nameplate
	allReduce                float64 // seconds of one over the output of a layer
	forward, backward, again float64 // again: of forward, the core of attention
}

// product of n tokens with a matrix. The backward pass has two, and adds the gradients of weights to their sum.
func (k *kernels) product(n, in, out float64) {
	w := k.o.Weights
	one := max(2*n*in*out/(k.flops*reachedFLOPS), w*(n*in+in*out+n*out)/k.bandwidth) + launch
	k.forward += one
	k.backward += 2*one + in*out*(w+2*k.o.Gradients+w)/k.bandwidth
}

// elementwise moves so many elements; its gradient twice as many.
func (k *kernels) elementwise(elements float64) {
	one := elements*k.o.Weights/k.bandwidth + launch
	k.forward += one
	k.backward += 2 * one
}

// exchange is the all-reduce in each pass that a tensor degree needs after attention, after the network and at either end.
func (k *kernels) exchange() {
	k.forward += k.allReduce
	k.backward += k.allReduce
}

func (k *kernels) run(activation, sequence, freed float64) layerprofile.Run {
	whole := 0.0
	if k.tensor > 1 {
		whole = sequence * (1 - 1/k.tensor)
	}
	return layerprofile.Run{Forward: k.forward, Backward: k.backward, Activation: beside * activation, Sequence: whole, Selective: k.again, Freed: freed}
}

// norm is what a norm keeps of an element: its input, a copy in 32 bits and its output, as PyTorch does.
func (k *kernels) norm() float64 { return 2*k.o.Weights + 4 }

func (k *kernels) reset() { k.forward, k.backward, k.again = 0, 0, 0 }

func (k *kernels) embedded() layerprofile.Run {
	k.reset()
	h := float64(k.Hidden)
	k.elementwise(2 * k.tokens * h)
	k.backward += float64(k.Vocabulary) / k.tensor * h * 2 * k.o.Gradients / k.bandwidth
	k.exchange()
	return k.run(8*float64(k.o.Tokens), 0, 0) // the numbers of tokens
}

func (k *kernels) head() layerprofile.Run {
	k.reset()
	h, s, vocabulary := float64(k.Hidden), float64(k.o.Tokens), float64(k.Vocabulary)/k.tensor
	k.elementwise(2 * k.tokens * h)
	k.product(k.tokens, h, vocabulary)
	k.elementwise(5 * k.tokens * vocabulary) // to 32 bits, the largest, the sum, the loss
	k.exchange()
	whole := s * h * k.norm()
	// Logits as they come, in 32 bits, and their gradients.
	return k.run(whole+s*vocabulary*(k.o.Weights+8), whole, 0)
}

func (k *kernels) block() layerprofile.Run {
	k.reset()
	h, s, w := float64(k.Hidden), float64(k.o.Tokens), k.o.Weights
	queries := float64(k.Heads*k.Head) / k.tensor
	keys := max(float64(k.KV)/k.tensor, 1) * float64(k.Head)
	k.elementwise(2 * k.tokens * h) // norm
	k.product(k.tokens, h, queries+2*keys)
	k.elementwise(2 * k.tokens * (queries + keys)) // positions
	freed := k.attention(queries)
	k.product(k.tokens, queries, h)
	k.exchange()
	k.elementwise(3 * k.tokens * h) // sum
	k.elementwise(2 * k.tokens * h) // norm
	kept := w * s * (2*queries + 2*keys + k.network()*(2*k.matrices()-2))
	k.exchange()
	k.elementwise(3 * k.tokens * h) // sum
	if k.Experts > 0 {
		kept += 2 * w * s * h * float64(k.Active) / k.tensor // samples in the order of experts, there and back
	}
	k.forward, k.backward = max(k.forward, host), max(k.backward, 2*host)
	whole := 2 * s * h * k.norm()
	if !k.Gated {
		whole += 2 * s * h // where these models drop elements: after attention and after the network
	}
	return k.run(whole+kept+freed, whole, freed)
}

// attention is its core. It returns the bytes of a sample that recomputing it frees.
func (k *kernels) attention(queries float64) float64 {
	s, before := float64(k.o.Tokens), k.forward
	if !k.o.Eager { // half of the scores, and 2.5 times the products to go back (arXiv 2307.08691)
		one := 2 * k.tokens * s * queries / (k.flops * reachedAttention)
		k.forward += one + launch
		k.backward += 2.5*one + launch
		return 0
	}
	one := 4*k.tokens*s*queries/(k.flops*reachedFLOPS) + 2*launch
	k.forward += one
	k.backward += 2 * one
	heads := queries / float64(k.Head)
	k.elementwise(8 * k.tokens * s * heads) // scale, mask, softmax, dropout
	k.again = k.forward - before
	kept := 4.0 // the softmax, in 32 bits
	if k.o.Weights < 4 {
		kept += k.o.Weights // and what becomes of it
	}
	return kept * heads * s * s
}

// network is what follows attention. It returns the elements of a token inside.
func (k *kernels) network() float64 {
	h := float64(k.Hidden)
	inside := func(n, width float64) {
		k.product(n, h, (k.matrices()-1)*width)
		k.elementwise(k.matrices() * n * width) // gate
		k.product(n, width, h)
	}
	if k.Experts == 0 {
		inside(k.tokens, float64(k.Inner)/k.tensor)
		return float64(k.Inner) / k.tensor
	}
	k.product(k.tokens, h, float64(k.Experts))
	k.elementwise(4 * k.tokens * h * float64(k.Active))
	before, back := k.forward, k.backward
	inside(k.tokens*float64(k.Active)/float64(k.Experts), float64(k.Inner)/k.tensor)
	k.forward += float64(k.Experts-1) * (k.forward - before)
	k.backward += float64(k.Experts-1) * (k.backward - back)
	if k.Shared > 0 {
		inside(k.tokens, float64(k.Shared)/k.tensor)
	}
	return (float64(k.Active*k.Inner) + float64(k.Shared)) / k.tensor
}
