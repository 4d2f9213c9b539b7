package live

import "evenkeel/cluster/profile"

// known finds the device that a name means, and the workload's profile on it; nil: none.
func known(name, workload string, catalogue *profile.Catalogue) (profile.Device, *profile.Profile) {
	for _, d := range catalogue.Like(name) {
		if p, err := catalogue.Lookup(d.Name, workload); err == nil {
			return d, p
		}
	}
	return profile.Device{}, nil
}
