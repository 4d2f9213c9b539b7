package peers

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

// Sailor is an input of eth-easl/sailor with the cost function of its simulator (sailor/Planner/simulations: iteration
// time, sync time, memory check; 32-bit floats, Adam) for devices of one zone.
type Sailor struct {
	Batch   int   // samples of an iteration
	Pool    []int // devices of each class
	classes []sailorClass
	output  []float64             // bytes of a sample that a layer sends on
	weights []float64             // bytes of a whole layer
	memory  map[int][]sailorLayer // by tensor degree
	links   map[[4]int][]float64  // polynomial in log2(MB), by class and tensor degree of sender and receiver
}

type sailorClass struct {
	memory float64                      // bytes
	times  map[int]map[int][][3]float64 // by micro-batch and tensor degree: forward, backward, update of each layer
}

type sailorLayer struct {
	Params  float64 `json:"params_floats"`
	Memory  float64 `json:"act_mem_floats"`
	Outputs float64 `json:"act_output_floats"`
}

// sailorBucket is Sailor's MEMORY_BUCKET_DEEPSPEED_SIZE.
const sailorBucket = 500_000_000

// perMachine are the devices of a machine: tensor degrees end there.
const perMachine = 4

// ReadSailor reads a folder of Sailor's files for a model and classes of devices with their memory in GiB.
func ReadSailor(folder, model, zone string, devices []string, memory []float64) (*Sailor, error) {
	s := &Sailor{memory: map[int][]sailorLayer{}, links: map[[4]int][]float64{}}
	var info map[string]map[string]map[string]sailorLayer
	if err := readJSON(filepath.Join(folder, "llm_info.json"), &info); err != nil {
		return nil, err
	}
	for key, layers := range info[model] {
		t, err := strconv.Atoi(key)
		if err != nil {
			return nil, fmt.Errorf("%w: llm_info.json: %s: %q is no tensor degree", ErrInput, model, key)
		}
		for i := range len(layers) {
			l, ok := layers[strconv.Itoa(i)]
			if !ok {
				return nil, fmt.Errorf("%w: llm_info.json: %s, tensor degree %d: layer %d is missing", ErrInput, model, t, i)
			}
			s.memory[t] = append(s.memory[t], l)
		}
	}
	if len(s.memory[1]) == 0 {
		return nil, fmt.Errorf("%w: llm_info.json: %s has no layers at tensor degree 1", ErrInput, model)
	}
	for _, l := range s.memory[1] {
		s.output = append(s.output, l.Outputs*4)
		s.weights = append(s.weights, l.Params*4)
	}
	for c, device := range devices {
		class := sailorClass{memory: memory[c] * (1 << 30), times: map[int]map[int][][3]float64{}}
		var profile map[int]map[int]map[int][3]float64
		name := filepath.Join("profiles", model, device, "profile.json")
		if err := readJSON(filepath.Join(folder, name), &profile); err != nil {
			return nil, err
		}
		for b, degrees := range profile {
			class.times[b] = map[int][][3]float64{}
			for t, layers := range degrees {
				if t > perMachine || len(layers) != len(s.output) {
					continue
				}
				times := make([][3]float64, len(layers))
				for i := range times {
					v, ok := layers[i]
					if !ok || !(v[0] >= 0) || !(v[1] >= 0) || !(v[2] >= 0) {
						return nil, fmt.Errorf("%w: %s: micro-batch %d, tensor degree %d: layer %d is missing or negative", ErrInput, name, b, t, i)
					}
					times[i] = v
				}
				class.times[b][t] = times
			}
		}
		s.classes = append(s.classes, class)
		s.Pool = append(s.Pool, 0)
	}
	return s, s.readLinks(filepath.Join(folder, "providers", "multizone_bandwidths_het.json"), zone, devices)
}

func (s *Sailor) readLinks(name, zone string, devices []string) error {
	var zones map[string]json.RawMessage
	if err := readJSON(name, &zones); err != nil {
		return err
	}
	var from map[string]map[int]map[string]map[string]map[int][2]json.RawMessage
	if err := json.Unmarshal(zones[zone], &from); err != nil {
		return fmt.Errorf("%w: %s: %s: %w", ErrInput, name, zone, err)
	}
	for a, sender := range devices {
		for b, receiver := range devices {
			for t, to := range from[sender] {
				for u, link := range to[zone][receiver] {
					var polynomial []float64
					if err := json.Unmarshal(link[0], &polynomial); err != nil {
						return fmt.Errorf("%w: %s: %s to %s: %w", ErrInput, name, sender, receiver, err)
					}
					s.links[[4]int{a, t, b, u}] = polynomial
				}
			}
		}
	}
	return nil
}

func readJSON(name string, into any) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrInput, name, err)
	}
	return nil
}

// SailorReplica is one replica of a stage: a class and how many of its devices divide the layers.
type SailorReplica struct{ Class, Tensor int }

// SailorStage is layers From..To-1 with their replicas, as many in every stage.
type SailorStage struct {
	From, To int
	Replicas []SailorReplica
}

// SailorPlan is a plan as Sailor's simulator takes it.
type SailorPlan struct {
	MicroBatch int // samples of a replica
	Stages     []SailorStage
}

// send is the seconds of a message.
func send(bytes float64, polynomial []float64) float64 {
	x, speed := math.Log2(bytes/1e6), 0.0
	for _, c := range polynomial {
		speed = speed*x + c
	}
	return bytes / 1e9 / speed
}

// reduce is the seconds of an all-reduce in buckets.
func reduce(bytes float64, n int, polynomial []float64) float64 {
	seconds := 0.0
	for ; bytes > 0 && n > 1; bytes -= sailorBucket {
		seconds += 2 * float64(n-1) * send(min(bytes, sailorBucket)/float64(n), polynomial)
	}
	return seconds
}

// fits is the simulator's check_config_fits for a replica of a stage, the behind-th from the end.
func (s *Sailor) fits(from, to, microBatch, behind int, r SailorReplica) bool {
	const states = 4*2 + 4 + 4 + 4 + 4 // bytes of a parameter: Adam, weights, copies, gradients, communication
	layers := s.memory[r.Tensor]
	if layers == nil {
		return false
	}
	used := 2.0e9
	if r.Tensor > 1 {
		used = 3.0e9
	}
	for _, l := range layers[from:to] {
		used += l.Params*states + l.Memory*float64(microBatch)*4*float64(behind)
	}
	return used <= s.classes[r.Class].memory
}

// Score is the seconds of an iteration by Sailor's simulate_iteration_time, +Inf where memory is not enough. An error
// tells of a plan that is none.
func (s *Sailor) Score(p SailorPlan) (float64, error) {
	used, next, stages := make([]int, len(s.Pool)), 0, len(p.Stages)
	for i, g := range p.Stages {
		if g.From != next || g.To <= g.From || len(g.Replicas) == 0 || len(g.Replicas) != len(p.Stages[0].Replicas) {
			return 0, fmt.Errorf("%w: stage %d: layers %d to %d, %d replicas", ErrInput, i, g.From, g.To, len(g.Replicas))
		}
		next = g.To
		for _, r := range g.Replicas {
			if s.classes[r.Class].times[p.MicroBatch][r.Tensor] == nil {
				return 0, fmt.Errorf("%w: stage %d: class %d was not profiled at tensor degree %d", ErrInput, i, r.Class, r.Tensor)
			}
			used[r.Class] += r.Tensor
			if !s.fits(g.From, g.To, p.MicroBatch, stages-i, r) {
				return math.Inf(1), nil
			}
		}
	}
	if next != len(s.output) {
		return 0, fmt.Errorf("%w: the stages end with layer %d of %d", ErrInput, next, len(s.output))
	}
	for c, n := range used {
		if n > s.Pool[c] {
			return 0, fmt.Errorf("%w: %d devices of class %d; there are %d", ErrInput, n, c, s.Pool[c])
		}
	}
	n := len(p.Stages[0].Replicas)
	microBatches := math.Ceil(float64(s.Batch) / float64(p.MicroBatch*n))
	slowest, total, update, sync := 0.0, 0.0, 0.0, 0.0
	for i, g := range p.Stages {
		compute := 0.0
		for _, r := range g.Replicas {
			seconds := 0.0
			times := s.classes[r.Class].times[p.MicroBatch][r.Tensor]
			for _, t := range times[g.From:g.To] {
				seconds += t[0] + t[1]
			}
			compute = max(compute, seconds)
			update = max(update, times[g.From][2])
		}
		seconds := compute + s.exchange(p, i)
		total += seconds
		slowest = max(slowest, seconds)
		sync = max(sync, s.synchronise(g))
	}
	return (microBatches-1)*slowest + total + update + sync, nil
}

// exchange is the simulator's estimate_p2p_pipeline_times of a stage.
func (s *Sailor) exchange(p SailorPlan, i int) float64 {
	g, last := p.Stages[i], len(p.Stages)-1
	slowest := func(other int, bytes float64) float64 {
		worst := 0.0
		for j, r := range g.Replicas {
			q := p.Stages[other].Replicas[j]
			worst = max(worst, send(bytes*float64(p.MicroBatch), s.links[[4]int{r.Class, r.Tensor, q.Class, q.Tensor}]))
		}
		return worst
	}
	switch {
	case last == 0:
		return 0
	case i == 0 && last+1 <= 3:
		return slowest(1, s.output[g.To-1])
	case i == 0:
		return 2 * slowest(1, s.output[g.To-1])
	case i == last:
		return 2 * slowest(i-1, s.output[g.From])
	}
	return slowest(i+1, s.output[g.To-1]) + slowest(i-1, s.output[g.From])
}

// synchronise is the simulator's estimate_sync_time of a stage.
func (s *Sailor) synchronise(g SailorStage) float64 {
	bytes, least := 0.0, 4
	for _, r := range g.Replicas {
		least = min(least, r.Tensor)
	}
	for _, w := range s.weights[g.From:g.To] {
		bytes += w / float64(least)
	}
	worst, seen := 0.0, map[[2]int]bool{}
	for j := range len(g.Replicas) - 1 {
		pair := [2]int{g.Replicas[j].Class, g.Replicas[j+1].Class}
		if !seen[pair] {
			seen[pair] = true
			worst = max(worst, reduce(bytes, len(g.Replicas), s.links[[4]int{pair[0], 1, pair[1], 1}]))
		}
	}
	return worst
}
