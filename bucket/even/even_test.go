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
	Costs    []float64 `json:"costs"`
	Speeds   []float64 `json:"speeds"`
	Counts   string    `json:"counts"`
	Micro    int       `json:"micro_batches"`
	Sizes    []float64 `json:"sizes"`
	Memory   []float64 `json:"memory"`
	Padded   bool      `json:"padded"`
	Fixed    float64   `json:"fixed"`
	Exchange []float64 `json:"exchange"`
	Parts    [][][]int `json:"parts"`
	Seconds  float64   `json:"seconds"`
}

func (v vector) options() Options {
	return Options{v.Counts == "free", v.Counts == "samples", v.Micro, v.Sizes, v.Memory, v.Padded, v.Fixed, v.Exchange}
}

// ranksOf are the ranks of each sample.
func ranksOf(parts [][][]int) map[int][]int {
	of := map[int][]int{}
	for r, p := range parts {
		for _, i := range slices.Concat(p...) {
			of[i] = append(of[i], r)
		}
	}
	return of
}

// seconds are those of a batch, from the definition. Ranks do their micro-batches in order, and begin one that they share together; infinite: they wait forever.
func seconds(parts [][][]int, costs, speeds []float64, o Options) (total float64) {
	of, clock, at := ranksOf(parts), make([]float64, len(parts)), make([]int, len(parts))
	for left := len(slices.Concat(parts...)); left > 0; {
		before := left
		for r, p := range parts {
			if at[r] == len(p) || !o.Free && slices.Min(at) < at[r] {
				continue
			}
			m, group, x := p[at[r]], []int{r}, o.Fixed
			if len(m) > 0 {
				group = of[m[0]]
			}
			begin, v, g := 0.0, math.Inf(1), float64(len(group))
			for _, q := range group {
				if at[q] == len(parts[q]) || !slices.Equal(parts[q][at[q]], m) {
					v = 0
				}
				begin, v = max(begin, clock[q]), min(v, speeds[q])
			}
			if v == 0 {
				continue
			}
			for _, i := range m {
				if g > 1 {
					x += costs[i]/g + o.Exchange[i]*(1-1/g)
				} else if o.Padded {
					x = max(x, o.Fixed+costs[i]*float64(len(m)))
				} else {
					x += costs[i]
				}
			}
			if len(m) == 0 {
				x = 0
			}
			for _, q := range group {
				clock[q], at[q], left = begin+x/v, at[q]+1, left-1
			}
			if total = slices.Max(clock); !o.Free && slices.Min(at) == slices.Max(at) {
				clock = slices.Repeat([]float64{total}, len(clock))
			}
		}
		if left == before {
			return math.Inf(1)
		}
	}
	return total
}

// check reports a division that loses a sample, exceeds the memory or has unequal counts.
func check(t interface{ Fatalf(string, ...any) }, parts [][][]int, costs []float64, o Options) {
	var all []int
	bins, of, cut := 0, ranksOf(parts), false
	for r, p := range parts {
		if !o.Free && len(p) != len(parts[0]) || len(p) < o.MicroBatches && !o.Free {
			t.Fatalf("rank %d has %d micro-batches, rank 0 %d", r, len(p), len(parts[0]))
		}
		if each := len(costs) / len(parts); o.Samples && (len(p) > 1 || len(slices.Concat(p...)) != each) {
			t.Fatalf("rank %d has %v, not %d samples", r, p, each)
		}
		for _, m := range p {
			bins++
			if len(m) > 0 && len(of[m[0]]) > 1 { // a sample that is cut
				group := of[m[0]]
				g := len(group)
				if cut = true; o.Exchange == nil || len(m) > 1 || g&(g-1) != 0 || group[0]%g != 0 || group[g-1] != group[0]+g-1 || o.Memory != nil && o.Sizes != nil && o.Sizes[m[0]]/float64(g) > o.Memory[r] {
					t.Fatalf("%v is cut over %v", m, group)
				}
				if r == group[0] {
					all = append(all, m...)
				}
				continue
			}
			all = append(all, m...)
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
		if cut {
			break
		}
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
		for k := range 16 { // some samples are cut
			v := vector{Speeds: [][]float64{{1, 1, 1, .5}, {1, 1, .4, 1.7, 1, 1, 1, 1}, {1, 1, 1}, {2}}[k%4], Counts: []string{"equal", "free"}[k/4%2], Micro: 1 + k%2, Fixed: float64(k % 3)}
			for range []int{24, 60}[k/8] {
				v.Costs = append(v.Costs, math.Round(100*math.Exp([]float64{2.4, 1.7, 1.7}[k%3]*r.NormFloat64()))/8)
				v.Sizes = append(v.Sizes, math.Round(v.Costs[len(v.Costs)-1]*.7))
				v.Exchange = append(v.Exchange, math.Round(v.Costs[len(v.Costs)-1]*.8)/8)
			}
			if k%3 > 0 {
				v.Memory = slices.Repeat([]float64{slices.Max(v.Sizes) / float64(1+len(v.Speeds)/2)}, len(v.Speeds))
				v.Memory[len(v.Speeds)-1] *= 1 + float64(k%3-1)/4
			}
			all = append(all, v)
		}
		v := vector{Speeds: []float64{1, 1, 1, .5}, Counts: "equal", Micro: 4, Padded: true} // long ones for the fast ranks alone
		for k := range 128 {
			v.Costs = append(v.Costs, math.Round([]float64{300, 10000}[(k%10)/9]*(1+.15*r.NormFloat64())))
		}
		all = append(all, v)
		// The cost is lost beside the fixed one; a rank that holds no sample.
		all = append(all, vector{Costs: []float64{0, 1.8e-12}, Speeds: []float64{1}, Counts: "equal", Micro: 1, Padded: true, Fixed: 1},
			vector{Costs: []float64{3, 2, 2}, Speeds: []float64{1, 1}, Counts: "equal", Micro: 1, Sizes: []float64{3, 2, 2}, Memory: []float64{1e-6, 4}})
		for k := range 8 {
			v := vector{Speeds: [][]float64{{1, 1, 1, .5}, {1, 1, .4, .4}}[k%2], Counts: "samples", Micro: 1, Padded: k == 5, Fixed: float64(k / 6), Costs: []float64{}}
			for range 4 * []int{0, 1, 2, 5, 8, 16, 16, 25}[k] {
				v.Costs = append(v.Costs, math.Round(100*math.Exp(r.NormFloat64()))/8)
			}
			all = append(all, v)
		}
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
	if len(all) < 87 {
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
		if got := seconds(parts, v.Costs, v.Speeds, v.options()); math.Abs(got-v.Seconds) > 1e-9*got {
			t.Errorf("case %d lasts %v, not %v", k, got, v.Seconds)
		}
	}
}

func TestProperties(t *testing.T) {
	// Numbers far apart in size: sums round.
	apart := rapid.Map(rapid.Float64Range(-40, 40), func(x float64) float64 { return math.Exp(x) })
	rapid.Check(t, func(t *rapid.T) {
		costs := rapid.SliceOfN(rapid.OneOf(rapid.Just(0.0), rapid.Float64Range(0, 10), apart), 0, 40).Draw(t, "costs")
		speeds := rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom([]float64{.5, 1}), rapid.Float64Range(.1, 3), apart), 1, 5).Draw(t, "speeds") // some alike, which differ in memory
		o := Options{Samples: rapid.Bool().Draw(t, "samples"), Free: rapid.Bool().Draw(t, "free"), MicroBatches: rapid.IntRange(0, 4).Draw(t, "micro"), Padded: rapid.Bool().Draw(t, "padded"), Fixed: rapid.OneOf(rapid.Float64Range(0, 3), apart).Draw(t, "fixed")}
		if o.Samples {
			o.Free, o.MicroBatches, costs = false, 1, costs[:len(costs)/len(speeds)*len(speeds)]
		}
		if !o.Samples && rapid.Bool().Draw(t, "limited") {
			o.Sizes = rapid.SliceOfN(rapid.Float64Range(0, 5), len(costs), len(costs)).Draw(t, "sizes")
			o.Memory = rapid.SliceOfN(rapid.Float64Range(1e-6, 20), len(speeds), len(speeds)).Draw(t, "memory")
			o.Memory[len(speeds)-1] = 5 // each sample fits one rank at least
		}
		if !o.Samples && !o.Padded && rapid.Bool().Draw(t, "cut") {
			o.Exchange = rapid.SliceOfN(rapid.Float64Range(0, 2), len(costs), len(costs)).Draw(t, "exchange")
		}
		parts, err := Partition(costs, speeds, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, parts, costs, o)
		if math.IsInf(seconds(parts, costs, speeds, o), 1) {
			t.Fatalf("the ranks of %v wait for one another forever", parts)
		}
	})
}

// Samples that are cut, beside all ways to cut and divide four samples on four ranks.
func TestCutTwin(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 4))
	ratios, cases := 0.0, 40
	for k := range cases {
		o, speeds, costs := Options{Free: true, Fixed: .1 * float64(k%2), Exchange: make([]float64, 4)}, [][]float64{{1, 1, 1, 1}, {1, 1, 1, .5}}[k/2%2], make([]float64, 4)
		for i := range costs {
			costs[i] = math.Exp(1.5 * r.NormFloat64())
			o.Exchange[i] = costs[i] / 10
		}
		parts, err := Partition(costs, speeds, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, parts, costs, o)
		best := math.Inf(1)
		var put func(i int, parts [][][]int) // after the cut samples each rank has one micro-batch, which comes last
		put = func(i int, parts [][][]int) {
			if i == len(costs) {
				best = min(best, seconds(parts, costs, speeds, o))
				return
			}
			for g := 1; g <= 4; g *= 2 {
				for first := 0; first < 4; first += g {
					next := slices.Clone(parts)
					for q := first; q < first+g; q++ {
						if n := len(next[q]); g == 1 && n > 0 && len(ranksOf(parts)[next[q][n-1][0]]) == 1 {
							next[q] = append(slices.Clone(next[q][:n-1]), append(slices.Clone(next[q][n-1]), i))
						} else if next[q] = append(slices.Clone(next[q]), []int{i}); g > 1 && n > 0 && len(ranksOf(parts)[next[q][n-1][0]]) == 1 {
							next[q][n-1], next[q][n] = next[q][n], next[q][n-1]
						}
					}
					put(i+1, next)
				}
			}
		}
		put(0, make([][][]int, 4))
		ratio := seconds(parts, costs, speeds, o) / best
		if ratio < 1-1e-9 || ratio > 1.35 {
			t.Fatalf("%v lasts %.3f of the shortest", parts, ratio)
		}
		ratios += ratio
	}
	if mean := ratios / float64(cases); mean > 1.12 {
		t.Errorf("%.4f of the shortest, in the mean", mean)
	}
}

// With samples that take up to four times a rank's memory ranks finish nearly together, which they would not if each were cut over as few as hold it.
func TestCut(t *testing.T) {
	for _, c := range []struct {
		free  bool
		slow  float64
		each  int // 64: without a limit of memory
		bound float64
	}{{true, 1, 256, 1.03}, {true, .4, 256, 1.04}, {false, 1, 256, 1.1}, {false, .4, 256, 1.18}, {true, 1, 64, 1.09}, {false, 1, 64, 1.13}} {
		r, took, work := rand.New(rand.NewPCG(1, 1)), 0.0, 0.0
		speeds := []float64{1, 1, 1, 1, c.slow, c.slow, c.slow, c.slow}
		for range 10 {
			o, costs := Options{Free: c.free, Fixed: 500, Memory: slices.Repeat([]float64{32768}, 8)}, []float64{}
			if c.each == 64 {
				o.Memory = nil
			}
			for range c.each {
				n := math.Floor(min(131072, max(16, 1000*math.Exp(1.7*r.NormFloat64()))))
				costs, o.Sizes, o.Exchange = append(costs, n+n*n/8192), append(o.Sizes, n), append(o.Exchange, n/8)
			}
			parts, err := Partition(costs, speeds, o)
			if err != nil {
				t.Fatal(err)
			}
			check(t, parts, costs, o)
			took, work = took+seconds(parts, costs, speeds, o), work+sum(costs)/sum(speeds)
		}
		if t.Logf("%+v: %.4f of the work", c, took/work); took/work > c.bound {
			t.Errorf("%+v: %.4f of the work", c, took/work)
		}
	}
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
					if len(m) == 0 && !o.Free || o.Samples && len(m) != len(costs)/ranks {
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
	for _, o := range []Options{{}, {Free: true}, {MicroBatches: 2}, {MicroBatches: 2, Padded: true}, {Padded: true, Fixed: .5}, {Free: true, Padded: true, MicroBatches: 2}, {Samples: true}} {
		sum, worst, cases := 0.0, 0.0, 60
		for k := range cases {
			speeds := [][]float64{{1, 1}, {1, .5}, {1.7, 1}}[k%3]
			costs := make([]float64, 7)
			for i := range costs {
				costs[i] = math.Exp(r.NormFloat64())
			}
			if o.Samples {
				costs = costs[1:]
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

// Padded, few long samples among many short ones: the fast ranks get the long ones.
func TestUnequalPadded(t *testing.T) {
	r, speeds, took, bound := rand.New(rand.NewPCG(5, 6)), []float64{1, 1, 1, .5}, 0.0, 0.0
	for range 10 {
		costs := make([]float64, 128)
		for i := range costs {
			n := 300 + 60*r.NormFloat64()
			if r.IntN(10) == 0 {
				n = 6000 + 800*r.NormFloat64()
			}
			costs[i] = n + n*n/8192
		}
		o := Options{MicroBatches: 4, Padded: true}
		parts, err := Partition(costs, speeds, o)
		if err != nil {
			t.Fatal(err)
		}
		check(t, parts, costs, o)
		took, bound = took+seconds(parts, costs, speeds, o), bound+max(sum(costs)/sum(speeds), slices.Max(costs))
	}
	if t.Logf("%.4f of the bound", took/bound); took/bound > 1.14 {
		t.Errorf("%.4f of the bound", took/bound)
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
		"sizes: sample 1 takes 1.5, and a micro-batch of each of so many ranks holds 1": func() ([][][]int, error) {
			return Partition([]float64{1, 2}, []float64{1, 1, 1}, Options{Sizes: []float64{1, 3}, Memory: []float64{1, 1, 1}, Exchange: []float64{0, 0}})
		},
		"exchange: sample 0 has -1": func() ([][][]int, error) {
			return Partition([]float64{1}, []float64{1}, Options{Exchange: []float64{-1}})
		},
		"exchange: 1 of them for 2 samples": func() ([][][]int, error) {
			return Partition([]float64{1, 2}, []float64{1}, Options{Exchange: []float64{1}})
		},
		"cannot be padded": func() ([][][]int, error) {
			return Partition([]float64{1}, []float64{1}, Options{Exchange: []float64{1}, Padded: true})
		},
		"7 samples for 2 ranks": func() ([][][]int, error) {
			return Partition(make([]float64, 7), []float64{1, 1}, Options{Samples: true})
		},
		"micro-batches -1": func() ([][][]int, error) { return Partition(nil, []float64{1}, Options{MicroBatches: -1}) },
	} {
		if parts, err := f(); !badinput.Is(err) || !strings.Contains(err.Error(), words) {
			t.Errorf("%v, %v; want %q", parts, err, words)
		}
	}
	for _, o := range []Options{{Free: true}, {MicroBatches: 2}, {Sizes: make([]float64, 4)}, {Memory: []float64{9, 9}}, {Exchange: make([]float64, 4)}} {
		o.Samples = true
		if _, err := Partition(make([]float64, 4), []float64{1, 1}, o); !badinput.Is(err) || !strings.Contains(err.Error(), "neither free counts, micro-batches, sizes") {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
