package layerprofile

import (
	"errors"
	"fmt"
	"slices"
)

// Merge joins profiles of one model that were measured on different devices. All files must have the same layers, and no measurement may be in
// two files. Times are as in the files; warnings are those of the merged profile. Errors wrap ErrProfile and name files and lines.
func Merge(paths ...string) (*Profile, error) {
	if len(paths) < 2 {
		return nil, fmt.Errorf("%w: %d files to merge; want at least 2", ErrProfile, len(paths))
	}
	var all []*source
	for i, path := range paths {
		if slices.Contains(paths[:i], path) {
			return nil, fmt.Errorf("%s: %w: it is given twice", path, ErrProfile)
		}
		s, err := load(path)
		if err != nil {
			return nil, err
		}
		if err := s.clone().Finish(path); err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	first := all[0]
	whole := first.clone()
	namers := slices.Repeat([]*source{first}, len(whole.Layers)) // the first file that names each layer
	origins := make([]map[key]origin, len(whole.Layers))
	runs := 0
	for _, s := range all {
		if n := len(s.profile.Layers); n != len(whole.Layers) {
			return nil, fmt.Errorf("%s: %w: it has %d layers, %s has %d; want profiles of one model", s.name, ErrProfile, n, first.name, len(whole.Layers))
		}
		for i := range s.profile.Layers {
			if err := s.agrees(namers[i], i); err != nil {
				return nil, err
			}
			l := &s.profile.Layers[i]
			if whole.Layers[i].Name == "" && l.Name != "" {
				whole.Layers[i].Name, namers[i] = l.Name, s
			}
			if origins[i] == nil {
				origins[i] = map[key]origin{}
			}
			for k, r := range l.Runs {
				at := origin{s, k}
				if had, twice := origins[i][keyOf(r)]; twice {
					return nil, at.repeats(had, i)
				}
				origins[i][keyOf(r)] = at
				if s != first {
					whole.Layers[i].Runs = append(whole.Layers[i].Runs, r)
				}
			}
			if runs += len(l.Runs); runs > maxRuns {
				return nil, fmt.Errorf("%s: %w: more than %d measurements together", s.name, ErrProfile, maxRuns)
			}
		}
	}
	for i := range whole.Layers {
		slices.SortStableFunc(whole.Layers[i].Runs, compareRuns)
	}
	checked := (&source{profile: whole}).clone()
	if err := checked.Finish("the whole"); err != nil {
		return nil, err
	}
	whole.Warnings = checked.Warnings
	return whole, nil
}

// agrees reports a layer whose sizes or name differ from another file's; one of the files may leave the name out.
func (s *source) agrees(other *source, layer int) error {
	a, b := &s.profile.Layers[layer], &other.profile.Layers[layer]
	if a.sameSizes(b) && (a.Name == b.Name || a.Name == "" || b.Name == "") {
		return nil
	}
	return fmt.Errorf("%s: %w: layer %d has %s and the name %q; %s says %s and %q",
		origin{s, 0}.in(layer), ErrProfile, layer, a.sizes(), a.Name, origin{other, 0}.in(layer), b.sizes(), b.Name)
}

// clone copies the profile of a source, so that Finish may change the copy.
func (s *source) clone() *Profile {
	p := *s.profile
	p.Layers, p.Warnings = slices.Clone(p.Layers), slices.Clone(p.Warnings)
	for i := range p.Layers {
		p.Layers[i].Runs = slices.Clone(p.Layers[i].Runs)
	}
	return &p
}

// once reports a measurement that is twice in the file.
func (s *source) once() error {
	for i, l := range s.profile.Layers {
		seen := make(map[key]int, len(l.Runs))
		for k, r := range l.Runs {
			if had, twice := seen[keyOf(r)]; twice {
				return origin{s, k}.repeats(origin{s, had}, i)
			}
			seen[keyOf(r)] = k
		}
	}
	return nil
}

type key struct {
	device     string
	degree     Degree
	microBatch int
}

func keyOf(r Run) key { return key{r.Device, r.degree(), r.MicroBatch} }

// origin is where a run comes from: the file, and its number among the layer's runs there.
type origin struct {
	*source
	run int
}

func (o origin) in(layer int) string {
	return fmt.Sprintf("%s:%d", o.name, o.lines[layer][o.run])
}

// repeats is the error about a measurement that another line has, too.
func (o origin) repeats(had origin, layer int) error {
	l := &o.profile.Layers[layer]
	a, b := l.Runs[o.run], had.profile.Layers[layer].Runs[had.run]
	same := errors.New("with the same numbers; leave one out")
	if a != b {
		same = fmt.Errorf("which says %v s forward, %v s backward and %v bytes of activations instead of %v s, %v s and %v; leave one out",
			b.Forward, b.Backward, b.Activation, a.Forward, a.Backward, a.Activation)
	}
	return fmt.Errorf("%s: %w: layer %d (%s) on %s, tensor %s: micro-batch %d is given twice: it is in %s too, %w",
		o.in(layer), ErrProfile, layer, l.Name, a.Device, a.degree(), a.MicroBatch, had.in(layer), same)
}
