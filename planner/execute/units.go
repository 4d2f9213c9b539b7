package execute

import (
	"strings"

	"github.com/evenkeel/evenkeel/train"
)

// Unit is layers From..To-1 of a network that stay together: what a plan counts as one layer.
type Unit struct {
	Name     string
	From, To int
}

// Units divides a network into the layers that plans speak of. Between two of them one tensor flows and nothing else,
// so that a stage may end there. Layers without parameters belong to the one before; layers whose names share what is
// before the first dot (a transformer's block1.norm1 to block1.add2) are one unit of that name.
func Units(n *train.Network) []Unit {
	var units []Unit
	for layer := range n.Layers() {
		group, _, grouped := strings.Cut(n.LayerName(layer), ".")
		last := len(units) - 1
		if last >= 0 && (n.Crossed(layer) || len(n.LayerParams(layer)) == 0 || grouped && units[last].Name == group) {
			units[last].To = layer + 1
			continue
		}
		units = append(units, Unit{group, layer, layer + 1})
	}
	return units
}
