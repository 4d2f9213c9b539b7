// Package clusters holds the cluster files that come with the program: the example and
// the held-out suite.
//
//	file, c, err := clusters.Load("heldout-8", profile.Embedded())
//
// See the Example.
package clusters

import (
	"bytes"
	"embed"
	"slices"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
)

//go:embed *.yaml
var files embed.FS

// HeldOut names the clusters of the held-out suite: devices and models that training
// never sees (the catalogue's split), 8 to 64 nodes.
var HeldOut = []string{"heldout-8", "heldout-16", "heldout-24", "heldout-32", "heldout-64"}

// Names lists the embedded cluster files. The first one, example, is the default of evenkeel run.
func Names() []string {
	return append([]string{"example"}, HeldOut...)
}

// YAML returns the text of an embedded cluster file. An unknown name is bad input.
func YAML(name string) ([]byte, error) {
	if !slices.Contains(Names(), name) {
		return nil, badinput.Errorf("clusters: no embedded cluster %q; known: %v", name, Names())
	}
	return files.ReadFile(name + ".yaml")
}

// Load reads an embedded cluster file.
func Load(name string, catalogue *profile.Catalogue) (*clusterfile.File, *cluster.Cluster, error) {
	text, err := YAML(name)
	if err != nil {
		return nil, nil, err
	}
	return clusterfile.Read(bytes.NewReader(text), name+".yaml", catalogue)
}
