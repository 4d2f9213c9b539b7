package profile

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/evenkeel/evenkeel/internal/names"
)

// ErrUnknown is wrapped by every UnknownError.
var ErrUnknown = errors.New("profile: unknown")

// UnknownError says which name the catalogue does not know and what comes near.
type UnknownError struct {
	Device   string   `json:"device"`
	Workload string   `json:"workload"`
	Field    string   `json:"field"`   // "device", "workload", or "pair": both are known, not together
	Nearest  []string `json:"nearest"` // up to three known names, best first; empty for a pair

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
		return fmt.Sprintf("unknown %s %q", what, clip(name))
	}
	return fmt.Sprintf("unknown %s %q; the nearest known: %s", what, clip(name), strings.Join(nearest, ", "))
}

func list(names []string) string {
	const show = 8
	if len(names) > show {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:show], ", "), len(names)-show)
	}
	return strings.Join(names, ", ")
}

// nearest returns up to three names by edit distance. Names that contain the wanted one, or
// are contained in it, count as closer: "a100" means "a100-40g".
func nearest(want string, known []string) []string {
	type scored struct {
		name string
		cost int
	}
	w := strings.ToLower(want)
	w = w[:min(len(w), MaxName)]
	all := make([]scored, 0, len(known))
	for _, n := range known {
		low := strings.ToLower(n)
		cost := 2 * names.Distance(w, low)
		if w != "" && (strings.Contains(low, w) || strings.Contains(w, low)) {
			cost /= 4
		}
		all = append(all, scored{n, cost})
	}
	slices.SortFunc(all, func(a, b scored) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.name, b.name)) })
	out := []string{}
	for _, s := range all[:min(3, len(all))] {
		out = append(out, s.name)
	}
	return out
}
