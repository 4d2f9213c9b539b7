package live

import (
	"slices"
	"strings"

	"evenkeel/cluster/profile"
)

// models are the catalogue's devices by words that torch.cuda.get_device_name must all contain. known prefers the first
// that matches.
var models = []struct {
	words []string
	name  string
}{
	{[]string{"A100", "40GB"}, "a100-40g"},
	{[]string{"A10G"}, "a10g"},
	{[]string{"RTX", "A6000"}, "a6000"},
	{[]string{"L40S"}, "l40s"},
	{[]string{"V100", "16GB"}, "v100-16g"},
	{[]string{"V100"}, "v100"},
	{[]string{"P100"}, "p100"},
	{[]string{"P40"}, "p40"},
	{[]string{"T4"}, "t4"},
	{[]string{"K80"}, "k80"},
}

// known finds the device that a name means, and the workload's profile on it; nil: none.
func known(name, workload string, catalogue *profile.Catalogue) (profile.Device, *profile.Profile) {
	names := []string{name}
	words := strings.FieldsFunc(strings.ToUpper(name), func(r rune) bool { return r == ' ' || r == '-' || r == '_' })
	for _, m := range models {
		if missing := func(w string) bool { return !slices.Contains(words, w) }; !slices.ContainsFunc(m.words, missing) {
			names = append(names, m.name)
		}
	}
	for _, n := range names {
		if p, err := catalogue.Lookup(n, workload); err == nil {
			device, _ := catalogue.Device(n)
			return device, p
		}
	}
	return profile.Device{}, nil
}
