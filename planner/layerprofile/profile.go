package layerprofile

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
)

// ErrProfile is wrapped by errors about layer profiles. It is bad input.
var ErrProfile = badinput.New("layerprofile: invalid layer profile")

// Profile holds measurements of a model's layers, from the first to the last. Sizes are of a sample.
type Profile struct {
	Model    string
	Layers   []Layer
	Warnings []string // what Finish corrected or left out
}

// Layer is a layer of a model.
type Layer struct {
	Name       string
	Parameters float64 // elements
	Output     float64 // bytes of a sample that go on to the next layer
	Tied       float64 // of the last layer: elements shared with the first layer (tied embeddings)
	Context    float64 // bytes of a sample that context parallelism passes around: keys and values of its attention
	Experts    int     // number of experts of a mixture, which replicas may divide among themselves; 0: none
	// ExpertParameters are the elements of all experts together, ExpertBytes the bytes that a sample sends to experts and gets back.
	ExpertParameters, ExpertBytes float64
	Runs                          []Run // by device, tensor degree, machines, micro-batch, each rising
}

// Run is a measurement of a layer on a device: seconds of one micro-batch, tensor-parallel communication included.
type Run struct {
	Device     string
	Tensor     int     // tensor-parallel degree
	MicroBatch int     // samples
	Forward    float64 // seconds
	Backward   float64 // seconds, 0: twice the forward pass
	Update     float64 // seconds of the optimizer, for the device's part of the parameters
	Activation float64 // bytes of a sample that a device keeps from the forward to the backward pass
	Fixed      float64 // bytes that a device holds beside the states of the parameters, whatever the number of samples
	// Selective recomputation (of the core of attention): seconds of the forward pass that it repeats, and bytes of a sample's
	// activations that it does not keep.
	Selective, Freed float64
	Sequence         float64 // bytes of a sample's activations that sequence parallelism does not keep
	Machines         int     // over which the devices were spread, at tensor degrees above the devices of a machine; 0: 1
}

// Devices are the devices that ran every layer.
func (p *Profile) Devices() []string {
	var all []string
	for _, r := range p.Layers[0].Runs {
		if !slices.Contains(all, r.Device) && !slices.ContainsFunc(p.Layers, func(l Layer) bool {
			return !slices.ContainsFunc(l.Runs, func(o Run) bool { return o.Device == r.Device })
		}) {
			all = append(all, r.Device)
		}
	}
	return all
}

// Degree is a tensor degree, and the number of machines over which its devices are spread.
type Degree struct{ Tensor, Machines int }

// String names the degree in messages.
func (d Degree) String() string {
	if d.Machines > 1 {
		return fmt.Sprintf("%d over %d machines", d.Tensor, d.Machines)
	}
	return fmt.Sprint(d.Tensor)
}

func compareDegrees(a, b Degree) int {
	return cmp.Or(cmp.Compare(a.Tensor, b.Tensor), cmp.Compare(a.Machines, b.Machines))
}

func (r *Run) degree() Degree { return Degree{r.Tensor, max(1, r.Machines)} }

// Degrees are the tensor degrees at which a device ran every layer, rising.
func (p *Profile) Degrees(device string) []Degree {
	all := degreesOf(&p.Layers[0], device)
	for i := range p.Layers[1:] {
		these := degreesOf(&p.Layers[1+i], device)
		all = slices.DeleteFunc(all, func(d Degree) bool { return !slices.Contains(these, d) })
	}
	return all
}

func degreesOf(l *Layer, device string) (all []Degree) {
	for i := range l.Runs {
		if r := &l.Runs[i]; r.Device == device {
			all = append(all, r.degree())
		}
	}
	slices.SortFunc(all, compareDegrees)
	return slices.Compact(all)
}

// MaxLayers is the largest number of layers of a profile.
const MaxLayers = 4096

const (
	maxRuns  = 1 << 20
	maxValue = 1e18 // seconds, bytes, parameters

	maxExperts = 1 << 16
)

// Finish sorts and checks the runs. It lowers times that fall while the micro-batch grows, with a warning. Errors begin with where, the
// name of the source, and wrap ErrProfile.
func (p *Profile) Finish(where string) error {
	if n := len(p.Layers); n == 0 || n > MaxLayers {
		return fmt.Errorf("%s: %w: %d layers; want 1 to %d", where, ErrProfile, n, MaxLayers)
	}
	falling := map[string]int{}
	for i := range p.Layers {
		l := &p.Layers[i]
		if !(l.Parameters >= 0 && l.Parameters <= maxValue && l.Output >= 0 && l.Output <= maxValue) {
			return fmt.Errorf("%s: %w: layer %d (%s): %v parameters, %v bytes of output; both must lie in 0..1e18", where, ErrProfile, i, l.Name, l.Parameters, l.Output)
		}
		if err := errors.Join(p.checkTied(i), l.checkExperts()); err != nil {
			return fmt.Errorf("%s: %w: layer %d (%s): %w", where, ErrProfile, i, l.Name, err)
		}
		slices.SortStableFunc(l.Runs, compareRuns)
		for j := range l.Runs {
			r := &l.Runs[j]
			if err := r.check(); err != nil {
				return fmt.Errorf("%s: %w: layer %d (%s) on %s, tensor %d, micro-batch %d: %w", where, ErrProfile, i, l.Name, r.Device, r.Tensor, r.MicroBatch, err)
			}
		}
		l.smooth(falling)
	}
	for _, d := range p.Devices() {
		for _, t := range p.Degrees(d) {
			if !slices.ContainsFunc(p.Layers, func(l Layer) bool { r := l.Curve(d, t)[0]; return r.Forward+r.Backward > 0 }) {
				return fmt.Errorf("%s: %w: every time of the smallest micro-batch on %s, tensor %s is 0", where, ErrProfile, d, t)
			}
		}
	}
	p.warn(falling)
	return nil
}

// checkTied reports tied parameters that a layer cannot have.
func (p *Profile) checkTied(layer int) error {
	last, first := &p.Layers[layer], &p.Layers[0]
	tied := last.Tied
	if tied == 0 || layer > 0 && layer == len(p.Layers)-1 && tied > 0 && tied <= last.Parameters-last.ExpertParameters && tied <= first.Parameters-first.ExpertParameters {
		return nil
	}
	return fmt.Errorf("%v tied parameters; only the last layer may share parameters with the first, no more than either has beside experts", tied)
}

// checkExperts reports sizes of experts and of context parallelism that a layer cannot have.
func (l *Layer) checkExperts() error {
	switch {
	case !(l.Context >= 0 && l.Context <= maxValue):
		return fmt.Errorf("%v bytes of context; must lie in 0..%g", l.Context, float64(maxValue))
	case l.Experts < 0 || l.Experts > maxExperts:
		return fmt.Errorf("%d experts; must lie in 0..%d", l.Experts, maxExperts)
	case !(l.ExpertParameters >= 0 && l.ExpertParameters <= l.Parameters) || !(l.ExpertBytes >= 0 && l.ExpertBytes <= maxValue):
		return fmt.Errorf("experts of %v parameters and %v bytes; must be a part of the layer's %v parameters, and bytes lie in 0..%g", l.ExpertParameters, l.ExpertBytes, l.Parameters, float64(maxValue))
	case l.Experts == 0 && (l.ExpertParameters > 0 || l.ExpertBytes > 0):
		return errors.New("it has expert_parameters or expert_bytes, but no experts: say how many")
	case l.Experts > 0 && (l.ExpertParameters == 0 || l.ExpertBytes == 0):
		return errors.New("it has experts: say their expert_parameters and the expert_bytes of a sample, too")
	}
	return nil
}

// smooth corrects times that fall while the micro-batch grows. Disturbances make a measurement longer, most often the first one. So a time above
// that of the next larger micro-batch is replaced by the line through the next two. Selective is lowered in proportion to Forward.
func (l *Layer) smooth(falling map[string]int) {
	for i := len(l.Runs) - 2; i >= 0; i-- {
		r, next := &l.Runs[i], l.Runs[i+1]
		if next.Device != r.Device || next.degree() != r.degree() || r.Forward <= next.Forward && r.Backward <= next.Backward {
			continue
		}
		falling[fmt.Sprintf("%s, tensor %s", r.Device, r.degree())]++
		after := next
		if i+2 < len(l.Runs) && l.Runs[i+2].Device == r.Device && l.Runs[i+2].degree() == r.degree() {
			after = l.Runs[i+2]
		}
		line := func(t, t1, t2 float64) float64 {
			if t <= t1 {
				return t
			}
			b, b1, b2 := float64(r.MicroBatch), float64(next.MicroBatch), float64(after.MicroBatch)
			if b1 == b2 {
				return t1
			}
			return min(t1, max(t1*b/b1, t1-(t2-t1)/(b2-b1)*(b1-b)))
		}
		forward := r.Forward
		r.Forward, r.Backward = line(r.Forward, next.Forward, after.Forward), line(r.Backward, next.Backward, after.Backward)
		if r.Forward < forward {
			r.Selective = min(r.Forward, r.Selective*(r.Forward/forward)) // still a part of Forward
		}
	}
}

func compareRuns(a, b Run) int {
	return cmp.Or(strings.Compare(a.Device, b.Device), compareDegrees(a.degree(), b.degree()), cmp.Compare(a.MicroBatch, b.MicroBatch))
}

func (r *Run) check() error {
	if r.Device == "" || r.Tensor < 1 || r.MicroBatch < 1 {
		return errors.New("want a device, and tensor and micro-batch of at least 1")
	}
	if r.Machines < 0 || r.Tensor%max(1, r.Machines) != 0 {
		return fmt.Errorf("machines is %d; must divide the tensor degree", r.Machines)
	}
	r.Backward = cmp.Or(r.Backward, 2*r.Forward)
	for _, x := range []struct {
		name  string
		value float64
	}{{"forward", r.Forward}, {"backward", r.Backward}, {"update", r.Update}, {"activation", r.Activation}, {"fixed", r.Fixed}, {"selective seconds", r.Selective}, {"selective bytes", r.Freed}, {"sequence bytes", r.Sequence}} {
		if !(x.value >= 0 && x.value <= maxValue) {
			return fmt.Errorf("%s is %v; must lie in 0..%g", x.name, x.value, float64(maxValue))
		}
	}
	if r.Selective > r.Forward || r.Freed > r.Activation {
		return fmt.Errorf("selective: %v seconds and %v bytes; must be parts of the %v forward seconds and %v activation bytes", r.Selective, r.Freed, r.Forward, r.Activation)
	}
	if r.Freed+r.Sequence > r.Activation {
		return fmt.Errorf("sequence: %v bytes, beside %v selective; must be parts of the %v activation bytes", r.Sequence, r.Freed, r.Activation)
	}
	return nil
}

// warn adds warnings about corrected times, and about devices and degrees that are left out.
func (p *Profile) warn(falling map[string]int) {
	for _, k := range slices.Sorted(maps.Keys(falling)) {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s: %d layer times fall although the micro-batch grows; replaced by the line through the next two", k, falling[k]))
	}
	devices := p.Devices()
	for _, d := range devices {
		var all []Degree
		for i := range p.Layers {
			all = append(all, degreesOf(&p.Layers[i], d)...)
		}
		slices.SortFunc(all, compareDegrees)
		if whole := p.Degrees(d); len(whole) < len(slices.Compact(all)) {
			p.Warnings = append(p.Warnings, fmt.Sprintf("%s, tensor degrees: only %v were measured for every layer; the others are left out", d, whole))
		}
	}
	for i, l := range p.Layers {
		for _, r := range l.Runs {
			if !slices.Contains(devices, r.Device) {
				p.Warnings = append(p.Warnings, fmt.Sprintf("%s ran layer %d (%s) but not every layer; it is left out", r.Device, i, l.Name))
				devices = append(devices, r.Device) // once
			}
		}
	}
}

// Curve is a layer's runs on one device at one tensor degree, by rising micro-batch.
type Curve []Run

// Curve is nil if the layer was not measured on the device at this degree.
func (l *Layer) Curve(device string, degree Degree) Curve {
	match := func(r Run) bool { return r.Device == device && r.degree() == degree }
	first := slices.IndexFunc(l.Runs, match)
	if first < 0 {
		return nil
	}
	n := first
	for n < len(l.Runs) && match(l.Runs[n]) {
		n++
	}
	return l.Runs[first:n]
}

// At interpolates the run of a micro-batch of so many samples: linearly between measured micro-batches, and the smallest one below it.
// It returns false above the largest, which probably did not fit.
func (c Curve) At(samples int) (Run, bool) {
	i := slices.IndexFunc(c, func(r Run) bool { return r.MicroBatch >= samples })
	if i < 0 {
		return Run{}, false
	}
	b := c[i]
	if i == 0 || b.MicroBatch == samples {
		b.MicroBatch = samples
		return b, true
	}
	a := c[i-1]
	share := float64(samples-a.MicroBatch) / float64(b.MicroBatch-a.MicroBatch)
	b.MicroBatch = samples
	for _, x := range []struct {
		value *float64
		low   float64
	}{{&b.Forward, a.Forward}, {&b.Backward, a.Backward}, {&b.Update, a.Update}, {&b.Selective, a.Selective}} {
		*x.value = x.low + share*(*x.value-x.low)
	}
	b.Activation, b.Fixed = max(a.Activation, b.Activation), max(a.Fixed, b.Fixed)
	b.Freed, b.Sequence = min(a.Freed, b.Freed), min(a.Sequence, b.Sequence)
	return b, true
}
