package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Difference lists where two plans differ, and what the cost model expects of both where they hold a prediction.
type Difference struct {
	Fields  []FieldDifference   `json:"fields"`
	Layers  []LayersDifference  `json:"layers"`
	Devices []DevicesDifference `json:"devices"`
}

// None reports whether the plans are the same.
func (d *Difference) None() bool { return len(d.Fields)+len(d.Layers)+len(d.Devices) == 0 }

// FieldDifference is a number or text of the whole plan. nil: a plan does not hold it.
type FieldDifference struct {
	Field string `json:"field"`
	A     any    `json:"a"`
	B     any    `json:"b"`
}

// LayersDifference is consecutive layers, From to To-1, that are trained on other devices or by another strategy. nil: a plan does not
// have them.
type LayersDifference struct {
	From int       `json:"from"`
	To   int       `json:"to"`
	A    *LayerUse `json:"a"`
	B    *LayerUse `json:"b"`
}

// LayerUse is how a layer is trained.
type LayerUse struct {
	Stage      int      `json:"stage"`
	Devices    string   `json:"devices"` // count and class of each group
	Tensor     string   `json:"tensor"`  // degree; of each group where they differ
	Sharding   Sharding `json:"sharding"`
	Checkpoint bool     `json:"checkpoint"`
	Selective  bool     `json:"selective,omitempty"`
}

// DevicesDifference is consecutive devices of a class whose work differs. nil: they have no work.
type DevicesDifference struct {
	Devices
	A *DeviceUse `json:"a"`
	B *DeviceUse `json:"b"`
}

// DeviceUse is the work of a device.
type DeviceUse struct {
	Stage      int `json:"stage"`
	Tensor     int `json:"tensor"`      // degree of its replica
	MicroBatch int `json:"micro_batch"` // samples that its replica takes of a micro-batch
}

// Compare lists where two valid plans differ.
func Compare(a, b *Plan) *Difference {
	d := &Difference{Fields: []FieldDifference{}, Layers: []LayersDifference{}, Devices: []DevicesDifference{}}
	field := func(name string, x, y any) {
		if x != y {
			d.Fields = append(d.Fields, FieldDifference{name, x, y})
		}
	}
	field("model", a.Model, b.Model)
	field("global_batch", a.GlobalBatch, b.GlobalBatch)
	field("micro_batch", a.MicroBatch, b.MicroBatch)
	field("context", max(1, a.Context), max(1, b.Context))
	field("experts", max(1, a.Experts), max(1, b.Experts))
	field("stages", len(a.Stages), len(b.Stages))
	if a.Schedule != b.Schedule || a.Chunks != b.Chunks {
		field("schedule", a.scheduleText(), b.scheduleText())
	}
	d.predictions(field, a.Predicted, b.Predicted)
	x, y := layerUses(a), layerUses(b)
	for l := range max(len(x), len(y)) {
		var u, v *LayerUse
		if l < len(x) {
			u = &x[l]
		}
		if l < len(y) {
			v = &y[l]
		}
		if same(u, v) {
			continue
		}
		if n := len(d.Layers); n > 0 && d.Layers[n-1].To == l && same(d.Layers[n-1].A, u) && same(d.Layers[n-1].B, v) {
			d.Layers[n-1].To++
			continue
		}
		d.Layers = append(d.Layers, LayersDifference{l, l + 1, u, v})
	}
	d.devices(a, b)
	return d
}

func same[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

// predictions compares the predictions, where either plan holds one.
func (d *Difference) predictions(field func(string, any, any), a, b *Prediction) {
	if a == nil && b == nil {
		return
	}
	pick := func(p *Prediction, f func(*Prediction) float64) any {
		if p == nil {
			return nil
		}
		return f(p)
	}
	both := func(name string, f func(*Prediction) float64) { field(name, pick(a, f), pick(b, f)) }
	both("seconds", func(p *Prediction) float64 { return p.Seconds })
	both("simulated", func(p *Prediction) float64 { return p.Simulated })
	both("idle", func(p *Prediction) float64 { return p.Idle })
	x, y := peaks(a), peaks(b)
	for _, name := range keys(x, y) {
		var u, v any
		if bytes, ok := x[name]; ok {
			u = bytes
		}
		if bytes, ok := y[name]; ok {
			v = bytes
		}
		field("peak_bytes "+name, u, v)
	}
}

// keys are those of two maps, rising.
func keys[V any](x, y map[string]V) []string {
	all := slices.AppendSeq(slices.Collect(maps.Keys(x)), maps.Keys(y))
	slices.Sort(all)
	return slices.Compact(all)
}

// peaks is the memory of the fullest device of every class.
func peaks(p *Prediction) map[string]float64 {
	all := map[string]float64{}
	if p != nil {
		for _, s := range p.Stages {
			for _, u := range s.Memory {
				all[u.Device] = max(all[u.Device], u.Peak())
			}
		}
	}
	return all
}

func layerUses(p *Plan) []LayerUse {
	var all []LayerUse
	for i := range p.Stages {
		s := &p.Stages[i]
		for _, y := range s.Strategies {
			u := LayerUse{Stage: i, Devices: s.devicesText(), Tensor: s.tensorText(y), Sharding: y.Sharding, Checkpoint: y.Checkpoint, Selective: y.Selective}
			all = append(all, slices.Repeat([]LayerUse{u}, y.To-y.From)...)
		}
	}
	return all
}

func (s *Stage) tensorText(y Strategy) string {
	if y.Tensor > 0 {
		return fmt.Sprint(y.Tensor)
	}
	var all []string
	for _, g := range s.Groups {
		if t := fmt.Sprint(g.Tensor); !slices.Contains(all, t) {
			all = append(all, t)
		}
	}
	return strings.Join(all, "+")
}

// segment is devices of a replica.
type segment struct {
	first, end int
	use        DeviceUse
}

func segments(p *Plan) map[string][]segment {
	all := map[string][]segment{}
	for i, s := range p.Stages[:p.Pipeline()] {
		for _, g := range s.Groups {
			for r, b := range g.MicroBatches {
				n := p.Replica(g)
				first := g.First + r*n
				all[g.Device] = append(all[g.Device], segment{first, first + n, DeviceUse{i, g.Tensor, b}})
			}
		}
	}
	for _, list := range all {
		slices.SortFunc(list, func(a, b segment) int { return a.first - b.first })
	}
	return all
}

// devices sweeps over every class from one edge of a replica, of either plan, to the next.
func (d *Difference) devices(a, b *Plan) {
	x, y := segments(a), segments(b)
	for _, class := range keys(x, y) {
		u, v := x[class], y[class]
		var at []int
		for _, s := range slices.Concat(u, v) {
			at = append(at, s.first, s.end)
		}
		slices.Sort(at)
		at = slices.Compact(at)
		for i := range len(at) - 1 {
			var p, q *DeviceUse
			p, u = useAt(u, at[i])
			q, v = useAt(v, at[i])
			if same(p, q) {
				continue
			}
			if n := len(d.Devices); n > 0 {
				if last := &d.Devices[n-1]; last.Device == class && last.First+last.Count == at[i] && same(last.A, p) && same(last.B, q) {
					last.Count += at[i+1] - at[i]
					continue
				}
			}
			d.Devices = append(d.Devices, DevicesDifference{Devices{class, at[i], at[i+1] - at[i]}, p, q})
		}
	}
}

// useAt is what a device does, and the segments that are not behind it.
func useAt(list []segment, device int) (*DeviceUse, []segment) {
	for len(list) > 0 && list[0].end <= device {
		list = list[1:]
	}
	if len(list) > 0 && list[0].first <= device {
		return &list[0].use, list
	}
	return nil, list
}
