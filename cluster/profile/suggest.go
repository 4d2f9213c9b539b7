package profile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/badinput"
	"github.com/evenkeel/evenkeel/internal/names"
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
		return fmt.Sprintf("workload %q was not measured on device %q: %s has %s; %s was measured on %s",
			e.Workload, e.Device, e.Device, list(e.DeviceHas), e.Workload, list(e.WorkloadHas))
	case "device":
		return unknown("device", e.Device, e.Nearest)
	}
	return unknown("workload", e.Workload, e.Nearest)
}

func (e *UnknownError) Unwrap() error { return ErrUnknown }

func unknown(what, name string, nearest []string) string {
	if len(nearest) == 0 {
		return fmt.Sprintf("unknown %s %q, and no known name is similar; evenkeel profiles list shows the known ones, --profiles adds your own measurements", what, clip(name))
	}
	return fmt.Sprintf("unknown %s %q; the nearest known: %s; if none of these is yours, measure it and add it by --profiles", what, clip(name), strings.Join(nearest, ", "))
}

func list(names []string) string {
	const show = 8
	if len(names) > show {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:show], ", "), len(names)-show)
	}
	return strings.Join(names, ", ")
}

// family is how many letters in common at the beginning make names relatives: "llama-9b"
// means a llama.
const family = 4

// nearest returns up to three names: relatives first, then by edit distance. Names that
// contain the wanted one, or are contained in it, count as closer: "a100" means
// "a100-40g". It returns none where nothing known resembles the wanted name.
func nearest(want string, known []string) []string {
	type scored struct {
		name string
		kin  bool
		cost int
	}
	w := strings.ToLower(want)
	w = w[:min(len(w), maxName)]
	all := make([]scored, 0, len(known))
	resembles := false
	for _, n := range known {
		low := strings.ToLower(n)
		s := scored{name: n, cost: 2 * names.Distance(w, low), kin: len(w) >= family && strings.HasPrefix(low, w[:family])}
		if w != "" && (strings.Contains(low, w) || strings.Contains(w, low)) {
			s.cost /= 4
			resembles = true
		}
		// A third of the letters may be wrong, and the rest of a long name missing.
		resembles = resembles || s.kin || names.Distance(w, low[:min(len(low), len(w))]) <= max(len(w)/3, 1)
		all = append(all, s)
	}
	if !resembles {
		return []string{}
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
