package sim

import (
	"fmt"
	"hash/fnv"
	"testing"

	"evenkeel/cluster"
)

// Additions to the conditions must not change runs without them: these are checksums of the
// nodes' states under the presets, to nine digits.
func TestPresetsKeepTheirBits(t *testing.T) {
	for _, p := range []struct{ name, sum string }{
		{"steady", "55a234d3309b7ede"},
		{"drift", "e98598a871d2c029"},
		{"interference", "27b19d3143ccc658"},
		{"bursts", "77a5c4206885f16e"},
		{"colocated", "c94cc0480e802d00"},
		{"powercap", "b231e8b5cd226fa0"},
		{"failures", "ce0bebc53be27265"},
		{"joins", "052871ea126d3367"},
		{"production", "5d8a9cf023b848e2"},
		{"racks", "576db7b7d152e96e"},
		{"diurnal", "46da5a6bdf5d1cea"},
		{"creep", "1aac447328675c49"},
		{"bimodal", "845ca964b3e04922"},
		{"wrong-profile", "ae0df902c6ac1fe6"},
		{"skewed-clocks", "55a234d3309b7ede"},
	} {
		s := New(&cluster.Cluster{GlobalBatch: 8, Nodes: make([]cluster.Node, 8)}, preset(t, p.name), 8)
		sum := fnv.New64a()
		for range 300 {
			for _, n := range s.nodes {
				fmt.Fprintf(sum, "%.9g %.9g %.9g %d\n", n.slowdown, n.factor, n.fails, n.away)
			}
			s.advance()
		}
		if got := fmt.Sprintf("%016x", sum.Sum64()); got != p.sum {
			t.Errorf("{%q, %q},", p.name, got)
		}
	}
}
