package agent

import (
	"bytes"
	"embed"
	"fmt"
	"path"
	"slices"

	"github.com/evenkeel/evenkeel/cluster"
	"github.com/evenkeel/evenkeel/cluster/profile"
)

//go:embed clusters/*.yaml
var clusters embed.FS

// HeldOut names the clusters of the held-out suite: devices and models that training
// never sees (the catalogue's split), 8 to 64 nodes.
var HeldOut = []string{"heldout-8", "heldout-16", "heldout-24", "heldout-32", "heldout-64"}

// Example is the name of the cluster that evenkeel run shows.
const Example = "example"

// ClusterNames lists the embedded cluster files.
func ClusterNames() []string {
	return append([]string{Example}, HeldOut...)
}

// ClusterYAML is the text of an embedded cluster file.
func ClusterYAML(name string) ([]byte, error) {
	if !slices.Contains(ClusterNames(), name) {
		return nil, fmt.Errorf("agent: no embedded cluster %q; known: %v", name, ClusterNames())
	}
	return clusters.ReadFile(path.Join("clusters", name+".yaml"))
}

// EmbeddedCluster reads an embedded cluster file.
func EmbeddedCluster(name string, catalogue *profile.Catalogue) (*cluster.File, *cluster.Cluster, error) {
	text, err := ClusterYAML(name)
	if err != nil {
		return nil, nil, err
	}
	return cluster.Read(bytes.NewReader(text), name+".yaml", catalogue)
}
