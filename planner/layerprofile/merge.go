package layerprofile

import (
	"fmt"
	"slices"
)

// Merge joins profiles of one model that were measured on different devices: all files must have the same layers, and no
// measurement may be in two of them. The times are as in the files; the warnings are those of reading the merged profile.
// Errors wrap ErrProfile and name files and lines.
func Merge(paths ...string) (*Profile, error) {
	if len(paths) < 2 {
		return nil, fmt.Errorf("%w: %d files to merge; want at least 2", ErrProfile, len(paths))
	}
	whole := &source{}
	for n, path := range paths {
		if slices.Contains(paths[:n], path) {
			return nil, fmt.Errorf("%s: %w: it is given twice", path, ErrProfile)
		}
		s, err := load(path)
		if err != nil {
			return nil, err
		}
		if err := s.profile.clone().Finish(path); err != nil {
			return nil, err
		}
		if n == 0 {
			whole.profile = &Profile{Model: s.profile.Model}
		} else if a, b := len(s.profile.Layers), len(whole.profile.Layers); a != b {
			return nil, fmt.Errorf("%s: %w: it has %d layers, %s has %d; want profiles of one model", path, ErrProfile, a, paths[0], b)
		}
		for i, l := range s.profile.Layers {
			for k, r := range l.Runs {
				at := s.origins[i].runs[k]
				if err := whole.add(i, l, r, at); err != nil {
					return nil, fmt.Errorf("%s: %w: %w", at, ErrProfile, err)
				}
			}
		}
	}
	for i := range whole.profile.Layers {
		slices.SortStableFunc(whole.profile.Layers[i].Runs, compareRuns)
	}
	checked := whole.profile.clone()
	if err := checked.Finish("the whole"); err != nil {
		return nil, err
	}
	whole.profile.Warnings = checked.Warnings
	return whole.profile, nil
}

// clone copies a profile, so that Finish may change the copy.
func (p *Profile) clone() *Profile {
	c := *p
	c.Layers = slices.Clone(p.Layers)
	for i := range c.Layers {
		c.Layers[i].Runs = slices.Clone(c.Layers[i].Runs)
	}
	return &c
}

// source is a profile as its files have it, before Finish.
type source struct {
	profile *Profile
	origins []origin // of each layer
	runs    int
}

// origin says at which file and line a layer was found.
type origin struct {
	described string // its name and sizes
	runs      []string
	seen      map[key]int // numbers of its runs
}

// key identifies a measurement of a layer.
type key struct {
	device     string
	degree     Degree
	microBatch int
}

// add adds a measurement of a layer. Lines about a layer must have the same sizes and the same name, which may be left out.
func (s *source) add(i int, l Layer, r Run, at string) error {
	for len(s.origins) <= i {
		s.profile.Layers = append(s.profile.Layers, Layer{})
		s.origins = append(s.origins, origin{seen: map[key]int{}})
	}
	had, o := &s.profile.Layers[i], &s.origins[i]
	switch {
	case had.Runs == nil:
		*had, o.described = l, at
		had.Runs = nil
	case !had.sameSizes(&l) || had.Name != l.Name && had.Name != "" && l.Name != "":
		return fmt.Errorf("layer %d has %s and the name %q; %s says %s and %q", i, l.sizes(), l.Name, o.described, had.sizes(), had.Name)
	case had.Name == "" && l.Name != "":
		had.Name, o.described = l.Name, at
	}
	k := key{r.Device, r.degree(), r.MicroBatch}
	if n, twice := o.seen[k]; twice {
		same, old := "with the same numbers", had.Runs[n]
		if r != old {
			same = fmt.Sprintf("which says %v s forward, %v s backward and %v bytes of activations instead of %v s, %v s and %v",
				old.Forward, old.Backward, old.Activation, r.Forward, r.Backward, r.Activation)
		}
		return fmt.Errorf("layer %d (%s) on %s, tensor %s: micro-batch %d is given twice: it is in %s too, %s; leave one out",
			i, had.Name, r.Device, r.degree(), r.MicroBatch, o.runs[n], same)
	}
	if s.runs++; s.runs > maxRuns {
		return fmt.Errorf("more than %d measurements", maxRuns)
	}
	o.seen[k] = len(had.Runs)
	had.Runs, o.runs = append(had.Runs, r), append(o.runs, at)
	return nil
}
