// Package invented makes random small planning jobs for tests.
package invented

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/layerprofile"
)

// Job is a random small planning job: at most 8 devices of a class, or 6 of two.
type Job struct {
	Profile     *layerprofile.Profile
	Topology    *cluster.Topology
	GlobalBatch int
	Sharding    string // the only kind allowed; "": all
	Checkpoint  string // as in the options of a job
}

// New draws a job of at most so many layers.
func New(rng *rand.Rand, most int) (*Job, error) {
	devices := []string{"fast", "slow"}[:1+rng.IntN(2)]
	yaml := "nodes:\n"
	for _, d := range devices {
		per := []int{1, 2, 4}[rng.IntN(3)]
		count := per * (1 + rng.IntN(max(2, 4/per)))
		if len(devices) == 2 {
			count, per = min(count, 3), 1
			if rng.IntN(2) == 0 {
				count, per = 2, 2
			}
		}
		yaml += fmt.Sprintf("  - {device: %s, count: %d, per_machine: %d, memory: %d, inside: {bandwidth: %dMB/s, latency: 1ms}, link: {bandwidth: %dMB/s, latency: 2ms}}\n",
			d, count, per, 1500+rng.IntN(12000), 1+rng.IntN(50), 1+rng.IntN(9))
	}
	topology, err := clusterfile.ReadTopology(strings.NewReader(yaml), "t", nil)
	if err != nil {
		return nil, err
	}
	p := &layerprofile.Profile{Model: "invented"}
	var kinds []layerprofile.Layer
	for range 1 + rng.IntN(3) {
		l := layerprofile.Layer{Parameters: float64(rng.IntN(20)), Output: float64(rng.IntN(2000))}
		for i, d := range devices {
			base := (1 + rng.Float64()) * float64(i+1) / 10
			for _, t := range []int{1, 2, 4} {
				for _, b := range []int{1, 2, 4} {
					f := base * (0.3 + float64(b)/math.Pow(float64(t), 0.8))
					l.Runs = append(l.Runs, layerprofile.Run{Device: d, Tensor: t, MicroBatch: b, Forward: f, Backward: 2 * f * (0.9 + 0.2*rng.Float64()), Update: 0.1 * base, Activation: float64(rng.IntN(50))})
				}
			}
		}
		kinds = append(kinds, l)
	}
	for i := range 2 + rng.IntN(most-1) {
		l := kinds[rng.IntN(len(kinds))]
		l.Name = fmt.Sprint("layer", i)
		p.Layers = append(p.Layers, l)
	}
	if err := p.Finish("invented"); err != nil {
		return nil, err
	}
	j := &Job{Profile: p, Topology: topology, GlobalBatch: []int{4, 6, 8}[rng.IntN(3)]}
	if rng.IntN(2) == 0 {
		j.Sharding = []string{"none", "optimizer", "gradients", "full"}[rng.IntN(4)]
	} else {
		j.Checkpoint = []string{"never", "always"}[rng.IntN(2)]
	}
	return j, nil
}

// Selective lets every other layer be recomputed in part: a fifth of its forward pass again for three fifths of its activations.
func (j *Job) Selective() {
	for i := range j.Profile.Layers {
		l := &j.Profile.Layers[i]
		l.Runs = slices.Clone(l.Runs)
		for k := range l.Runs {
			if r := &l.Runs[k]; i%2 == 0 {
				r.Selective, r.Freed = 0.2*r.Forward, 0.6*r.Activation
			}
		}
	}
}

// Spread gives layers what replicas may divide among devices: keys and values, four experts that most of the parameters are in, and at tensor
// degrees above 1 a third of the activations.
func (j *Job) Spread() {
	for i := range j.Profile.Layers {
		l := &j.Profile.Layers[i]
		if l.Runs = slices.Clone(l.Runs); i%2 == 0 {
			l.Context = l.Output / 2
		} else if l.Parameters > 0 {
			l.Parameters *= 10
			l.Experts, l.ExpertParameters, l.ExpertBytes = 4, 0.9*l.Parameters, 1+l.Output/50
		}
		for k := range l.Runs {
			if r := &l.Runs[k]; r.Tensor > 1 {
				r.Sequence = r.Activation / 3
			}
		}
	}
}
