package even

import (
	"encoding/json"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"evenkeel/internal/badinput"
)

var update = flag.Bool("update", false, "write internal/vectors/bucket-partition.json anew")

// vector is a batch with its division.
type vector struct {
	Costs   []float64 `json:"costs"`
	Speeds  []float64 `json:"speeds"`
	Counts  string    `json:"counts"`
	Micro   int       `json:"micro_batches"`
	Sizes   []float64 `json:"sizes"`
	Memory  []float64 `json:"memory"`
	Padded  bool      `json:"padded"`
	Fixed   float64   `json:"fixed"`
	Parts   [][][]int `json:"parts"`
	Seconds float64   `json:"seconds"`
}

func (v vector) options() Options {
	return Options{v.Counts == "free", v.Micro, v.Sizes, v.Memory, v.Padded, v.Fixed}
}

// seconds are those of a batch, from the definition.
func seconds(parts [][][]int, costs, speeds []float64, o Options) (total float64) {
	each := func(m []int) (x float64) {
		if len(m) == 0 {
			return 0
		}
		for _, i := range m {
			if o.Padded {
				x = max(x, costs[i]*float64(len(m)))
			} else {
				x += costs[i]
			}
		}
		return o.Fixed + x
	}
	if o.Free {
		for r, p := range parts {
			x := 0.0
			for _, m := range p {
				x += each(m) / speeds[r]
			}
			total = max(total, x)
		}
		return total
	}
	for k := range parts[0] {
		most := 0.0
		for r, p := range parts {
			most = max(most, each(p[k])/speeds[r])
		}
		total += most
	}
	return total
}

// check reports a division that loses a sample, exceeds the memory or has unequal counts.
func check(t interface{ Fatalf(string, ...any) }, parts [][][]int, costs []float64, o Options) {
	var all []int
	bins := 0
	for r, p := range parts {
		if !o.Free && len(p) != len(parts[0]) || len(p) < o.MicroBatches && !o.Free {
			t.Fatalf("rank %d has %d micro-batches, rank 0 %d", r, len(p), len(parts[0]))
		}
		for _, m := range p {
			all, bins = append(all, m...), bins+1
			used, largest := 0.0, 0.0
			for _, i := range m {
				size := 1.0
				if o.Sizes != nil {
					size = o.Sizes[i]
				}
				used, largest = used+size, max(largest, size)
			}
			if o.Padded {
				used = largest * float64(len(m))
			}
			if o.Memory != nil && used > o.Memory[r]*(1+1e-12) {
				t.Fatalf("a micro-batch of rank %d takes %v of %v", r, used, o.Memory[r])
			}
		}
	}
	slices.Sort(all)
	for i := range costs {
		if i >= len(all) || all[i] != i || len(all) != len(costs) {
			t.Fatalf("samples %v", all)
		}
	}
	if most := max(1, o.MicroBatches, len(costs)); bins > most*len(parts) {
		t.Fatalf("%d micro-batches for %d samples", bins, len(costs))
	}
	for r, p := range parts {
		for _, m := range p {
			if len(m) == 0 && len(costs) >= bins && o.Memory == nil {
				t.Fatalf("rank %d has an empty micro-batch", r)
			}
		}
		if len(p) == 0 && len(costs) >= len(parts) && o.Memory == nil {
			t.Fatalf("rank %d has nothing", r)
		}
	}
}

// Python's partition reads the same file and must divide alike.
func TestVectors(t *testing.T) {
	const path = "../../internal/vectors/bucket-partition.json"
	if *update {
		var all []vector
		r := rand.New(rand.NewPCG(1, 2))
		for k := range 60 {
			n := []int{1, 3, 17, 40, 90}[k%5]
			v := vector{Speeds: [][]float64{{1, 1, 1, .5}, {1, 1, 1}, {1, .4, 1.7}, {2}}[k%4], Counts: []string{"equal", "free"}[k/2%2], Micro: 1 + k%3, Padded: k%7 > 3}
			for range n {
				v.Costs = append(v.Costs, math.Round(100*math.Exp(r.NormFloat64()))/8)
			}
			if k%3 == 0 {
				v.Fixed = 2.5
			}
			if k%4 > 1 {
				most := slices.Max(v.Costs)
				for range v.Speeds {
					v.Memory = append(v.Memory, math.Round(1.5*most)+float64(r.IntN(9)))
				}
				for _, c := range v.Costs {
					v.Sizes = append(v.Sizes, math.Round(c+.7))
				}
			}
			all = append(all, v)
		}
		// The cost is lost beside the fixed one; a rank that holds no sample.
		all = append(all, vector{Costs: []float64{0, 1.8e-12}, Speeds: []float64{1}, Counts: "equal", Micro: 1, Padded: true, Fixed: 1},
			vector{Costs: []float64{3, 2, 2}, Speeds: []float64{1, 1}, Counts: "equal", Micro: 1, Sizes: []float64{3, 2, 2}, Memory: []float64{1e-6, 4}})
		for k, v := range all {
			parts, err := Partition(v.Costs, v.Speeds, v.options())
			if err != nil {
				t.Fatal(err)
			}
			all[k].Parts, all[k].Seconds = parts, seconds(parts, v.Costs, v.Speeds, v.options())
		}
		data, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append([]byte(strings.ReplaceAll(string(data), `},{"costs"`, "},\n{\"costs\"")), '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []vector
	if err := json.Unmarshal(data, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) < 62 {
		t.Fatalf("%d cases", len(all))
	}
	for k, v := range all {
		parts, err := Partition(v.Costs, v.Speeds, v.options())
		if err != nil {
			t.Fatal(k, err)
		}
		check(t, parts, v.Costs, v.options())
		if diff := cmp.Diff(v.Parts, parts); diff != "" {
			t.Errorf("case %d: %s", k, diff)
		}
	}
}

func TestProperties(t *testing.T) {
	// Numbers far apart in size: sums round.
	apart := rapid.Map(rapid.Float64Range(-40, 40), func(x float64) float64 { return math.Exp(x) })
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 10), apart), 0, 40).Draw(t, "costs")
		speeds := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]float64{.5, 1}), rapid.Float64Range(.1, 3), apart), 1, 5).Draw(t, "speeds") // some alike, which differ in memory
		o := Options{Free: rapid.Bool().Draw(t, "free"), MicroBatches: rapid.IntRange(0, 4).Draw(t, "micro"), Padded: rapid.Bool().Draw(t, "padded"), Fixed: rapid.OneOf(rapid.Float64Range(0, 3), apart).Draw(t, "fixed")}
		if rapid.Bool().Draw(t, "limited") {
			o.Sizes = rapid.SliceOfN(rapid.Float64Range(0, 5), len(costs), len(costs)).Draw(t, "sizes")
			o.Memory = rapid.SliceOfN(rapid.Float64Range(1e-6, 20), len(speeds), len(speeds)).Draw(t, "memory")
			o.Memory[len(speeds)-1] = 5 // each sample fits one rank at least
		}
		parts, err := Partition(costs, speeds, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, parts, costs, o)
	})
}

// twin tries all divisions.
func twin(costs, speeds []float64, o Options) float64 {
	ranks, steps := len(speeds), max(1, o.MicroBatches)
	parts := make([][][]int, ranks)
	for r := range parts {
		parts[r] = make([][]int, steps)
	}
	best := math.Inf(1)
	var put func(i int)
	put = func(i int) {
		if i == len(costs) {
			for _, p := range parts {
				for _, m := range p {
					if len(m) == 0 && !o.Free {
						return
					}
				}
			}
			best = min(best, seconds(parts, costs, speeds, o))
			return
		}
		for _, p := range parts {
			for k := range p {
				p[k] = append(p[k], i)
				put(i + 1)
				p[k] = p[k][:len(p[k])-1]
			}
		}
	}
	put(0)
	return best
}

// No division of few samples is much longer than the shortest of all, and few are longer at all.
func TestTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, o := range []Options{{}, {Free: true}, {MicroBatches: 2}, {MicroBatches: 2, Padded: true}, {Padded: true, Fixed: .5}, {Free: true, Padded: true, MicroBatches: 2}} {
		sum, worst, cases := 0.0, 0.0, 60
		for k := range cases {
			speeds := [][]float64{{1, 1}, {1, .5}, {1.7, 1}}[k%3]
			costs := make([]float64, 7)
			for i := range costs {
				costs[i] = math.Exp(r.NormFloat64())
			}
			parts, err := Partition(costs, speeds, o)
			if err != nil {
				t.Fatal(err)
			}
			ratio := seconds(parts, costs, speeds, o) / twin(costs, speeds, o)
			if ratio < 1-1e-9 {
				t.Fatalf("%v is shorter than the shortest", parts)
			}
			sum, worst = sum+ratio, max(worst, ratio)
		}
		t.Logf("%+v: mean %.4f, worst %.3f", o, sum/float64(cases), worst)
		if sum/float64(cases) > 1.04 || worst > 1.35 {
			t.Errorf("%+v: mean %.4f, worst %.3f of the shortest", o, sum/float64(cases), worst)
		}
	}
}

// Ranks of unequal speed finish together, whether counts are equal or free, and wait little in any micro-batch.
func TestUnequalSpeeds(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, speeds := range [][]float64{{1, 1, 1, .5}, {1, 1, 1, 1, .4, .4, .4, .4}} {
		for _, o := range []Options{{}, {Free: true}, {MicroBatches: 4}, {Memory: []float64{16384}}} {
			took, bound := 0.0, 0.0
			for range 10 {
				costs, speed := make([]float64, 64*len(speeds)), 0.0
				for _, v := range speeds {
					speed += v
				}
				o.Sizes = make([]float64, len(costs))
				for i := range costs {
					o.Sizes[i] = min(8192, math.Ceil(400*math.Exp(.8*r.NormFloat64())))
					costs[i] = o.Sizes[i] + o.Sizes[i]*o.Sizes[i]/8192
				}
				if o.Memory != nil {
					o.Memory = slices.Repeat(o.Memory[:1], len(speeds))
				}
				parts, err := Partition(costs, speeds, o)
				if err != nil {
					t.Fatal(err)
				}
				check(t, parts, costs, o)
				took += seconds(parts, costs, speeds, o)
				bound += max(sum(costs)/speed, slices.Max(costs))
			}
			if t.Logf("%v %+v: %.4f of the bound", speeds, o.MicroBatches, took/bound); took/bound > 1.01 {
				t.Errorf("%v, free %v, %d micro-batches: %.4f of the bound", speeds, o.Free, o.MicroBatches, took/bound)
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	nan := math.NaN()
	for words, f := range map[string]func() ([][][]int, error){
		"costs: sample 1 has NaN":   func() ([][][]int, error) { return Partition([]float64{1, nan}, []float64{1}, Options{}) },
		"costs: sample 0 has -1":    func() ([][][]int, error) { return Partition([]float64{-1}, []float64{1}, Options{}) },
		"speeds: rank 1 has 0":      func() ([][][]int, error) { return Partition([]float64{1}, []float64{1, 0}, Options{}) },
		"speeds: give one per rank": func() ([][][]int, error) { return Partition([]float64{1}, nil, Options{}) },
		"costs up to 1e+308 by speeds from 0.1": func() ([][][]int, error) {
			return Partition([]float64{1, 1e308}, []float64{1, .1}, Options{})
		},
		"costs up to 1 by speeds from 1e-310": func() ([][][]int, error) { return Partition([]float64{1}, []float64{1e-310}, Options{}) },
		"sizes: 1 of them for 2": func() ([][][]int, error) {
			return Partition([]float64{1, 2}, []float64{1}, Options{Sizes: []float64{1}})
		},
		"sizes: sample 1 takes 3": func() ([][][]int, error) {
			return Partition([]float64{1, 2}, []float64{1}, Options{Sizes: []float64{1, 3}, Memory: []float64{2}})
		},
		"memory: rank 0 has 0":         func() ([][][]int, error) { return Partition(nil, []float64{1}, Options{Memory: []float64{0}}) },
		"memory: 1 limits for 2 ranks": func() ([][][]int, error) { return Partition(nil, []float64{1, 1}, Options{Memory: []float64{1}}) },
		"micro-batches -1":             func() ([][][]int, error) { return Partition(nil, []float64{1}, Options{MicroBatches: -1}) },
	} {
		if parts, err := f(); !badinput.Is(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, %v; want %q", parts, err, words)
		}
	}
}
