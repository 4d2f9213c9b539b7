package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"evenkeel/internal/badinput"
	"evenkeel/internal/names"
)

// ErrUnknown is wrapped by every UnknownError.
var ErrUnknown = badinput.New("profile: unknown name")

// UnknownError names what the catalogue does not know, and the nearest known names.
type UnknownError struct {
	Device   string   `json:"device"`
	Workload string   `json:"workload"`
	Field    string   `json:"field"`   // "device", "workload", or "pair": both are known, not together
	Nearest  []string `json:"nearest"` // up to three known names, best first; empty for a pair, or where none resembles

	DeviceHas   []string `json:"device_has"`   // workloads measured on the device, sorted
	WorkloadHas []string `json:"workload_has"` // devices the workload was measured on, sorted
}

func (e *UnknownError) Error() string {
	switch e.Field {
	case "pair":
		if len(e.DeviceHas) == 0 {
			return fmt.Sprintf("no workload was measured on device %q, of which only the data sheet is known; %s", e.Device, own)
		}
		return fmt.Sprintf("workload %q was not measured on device %q: %s has %s; %s was measured on %s; %s",
			e.Workload, e.Device, e.Device, list(e.DeviceHas), e.Workload, list(e.WorkloadHas), own)
	case "device":
		return unknown("device", e.Device, e.Nearest)
	}
	return unknown("workload", e.Workload, e.Nearest)
}

func (e *UnknownError) Unwrap() error { return ErrUnknown }

// own is what to do about what the catalogue lacks.
const own = "measure yours by python3 -m evenkeel.profile and add it by --profiles (docs/guides/profiles.md)"

func unknown(what, name string, nearest []string) string {
	if len(nearest) == 0 {
		return fmt.Sprintf("unknown %s %q; evenkeel profiles %s shows the known ones; %s", what, clip(name), map[string]string{"device": "devices", "workload": "list"}[what], own)
	}
	return fmt.Sprintf("unknown %s %q; did you mean %s? If not, %s", what, clip(name), strings.Join(nearest, ", "), own)
}

func list(names []string) string {
	const show = 8
	if len(names) > show {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:show], ", "), len(names)-show)
	}
	return strings.Join(names, ", ")
}

// family is the length of a common prefix that makes names relatives: "llama-9b" means a
// llama.
const family = 4

// nearest returns up to three names: relatives first, then by edit distance. Names that
// contain the wanted one, or are contained in it, count as closer: "a100" means
// "a100-40g". Only likely misspellings are returned: "h100" is another device than "p100".
func nearest(want string, known []string) []string {
	type scored struct {
		name string
		kin  bool
		cost int
	}
	w := plain(want)
	w = w[:min(len(w), maxName)]
	all := make([]scored, 0, len(known))
	for _, n := range known {
		low := plain(n)
		s := scored{name: n, cost: 2 * names.Distance(w, low), kin: len(w) >= family && strings.HasPrefix(low, w[:family])}
		if w != "" && strings.Contains(low, w) || len(low) >= family && strings.Contains(w, low) {
			s.cost /= 4
		} else if !s.kin && names.Distance(w, low[:min(len(low), len(w))]) > len(w)/5 { // the rest of a long name may be missing
			continue
		}
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b scored) int {
		if a.kin != b.kin {
			if a.kin {
				return -1
			}
			return 1
		}
		return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name))
	})
	out := []string{}
	for _, s := range all[:min(3, len(all))] {
		out = append(out, s.name)
	}
	return out
}
