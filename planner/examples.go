package planner

import (
	"bytes"
	_ "embed" // the example

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/planner/layerprofile"
)

// The example: OPT-350M on A100 and V100, with profiles of more devices.
var (
	//go:embed examples/opt-350m.csv
	exampleProfile []byte
	//go:embed examples/mixed.yaml
	exampleCluster []byte
)

// Example returns an embedded layer profile and cluster.
func Example() (*layerprofile.Profile, *cluster.Topology, error) {
	p, err := layerprofile.Read(bytes.NewReader(exampleProfile), "opt-350m.csv")
	if err != nil {
		return nil, nil, err
	}
	t, err := clusterfile.ReadTopology(bytes.NewReader(exampleCluster), "mixed.yaml", nil)
	return p, t, err
}
