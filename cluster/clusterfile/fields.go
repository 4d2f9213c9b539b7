package clusterfile

import (
	"fmt"
	"reflect"

	"github.com/goccy/go-yaml/ast"

	"evenkeel/cluster"
)

// Batch is the global batch in a file: a number of samples, or the first value and the
// bounds if the policy chooses it.
type Batch struct {
	Start int `yaml:"start"`
	Least int `yaml:"least"` // 1..Start; both 0: Start stands
	Most  int `yaml:"most"`  // Start..MaxGlobalBatch
}

func (b *Batch) decode(d *decoder, path string, node ast.Node) {
	if _, ok := entries(node); !ok {
		d.basic(path, node, reflect.ValueOf(&b.Start).Elem())
		return
	}
	before := len(d.faults)
	d.fields(path, node, reflect.ValueOf(b).Elem())
	for _, key := range []string{"start", "least", "most"} {
		if _, ok := d.lines[path+"."+key]; !ok {
			d.fault(path, "%s is missing; write {start: 384, least: 192, most: 768}, or a number of samples", key)
		}
	}
	if len(d.faults) > before {
		return
	}
	within := func(key string, v, least, most int) {
		if v < least || v > most {
			d.fault(path+"."+key, "is %d; 1 <= least <= start <= most <= %d must hold", v, cluster.MaxGlobalBatch)
		}
	}
	within("start", b.Start, 1, cluster.MaxGlobalBatch)
	within("least", b.Least, 1, b.Start)
	within("most", b.Most, b.Start, cluster.MaxGlobalBatch)
}

// maxShapes is the most sizes in a list of micro-batches.
const maxShapes = 64

// MicroBatch says which micro-batches a node takes: the largest (8), bounds
// ({least: 2, most: 16}), or a list of all (the shapes that a compiled model accepts).
type MicroBatch struct {
	Least, Most int   // bounds; Most 0: what memory holds
	Shapes      []int // rising; nil: the bounds stand
}

func (m *MicroBatch) decode(d *decoder, path string, node ast.Node) {
	list, isList := node.(*ast.SequenceNode)
	_, isBounds := entries(node)
	switch {
	case isList:
		d.list(path, node, reflect.ValueOf(&m.Shapes).Elem())
		if n := len(list.Values); n == 0 || n > maxShapes {
			d.fault(path, "lists %d sizes; it must list 1 to %d, or be left out", n, maxShapes)
		}
	case isBounds:
		bounds := struct {
			Least int `yaml:"least"`
			Most  int `yaml:"most"`
		}{Least: 1}
		d.fields(path, node, reflect.ValueOf(&bounds).Elem())
		m.Least, m.Most = bounds.Least, bounds.Most
		if _, ok := d.lines[path+".most"]; ok && bounds.Most < bounds.Least {
			d.fault(path+".most", "is %d, below least, %d", bounds.Most, bounds.Least)
		}
		if bounds.Least < 1 {
			d.fault(path+".least", "is %d; it must be at least 1 sample", bounds.Least)
		}
	default:
		m.Least = 1
		before := len(d.faults)
		if d.basic(path, node, reflect.ValueOf(&m.Most).Elem()); m.Most < 1 && len(d.faults) == before {
			d.fault(path, "is %d; write the largest micro-batch (8), bounds {least: 2, most: 16}, or a list [1, 2, 4, 8]", m.Most)
		}
	}
}

// Conditions is a preset's name, or a mapping with an optional preset whose given
// fields replace the preset's.
type Conditions struct {
	Preset     string
	Conditions cluster.Conditions
}

func (f *Conditions) decode(d *decoder, path string, node ast.Node) {
	if _, ok := text(node); ok {
		d.scalar(path, node, (*preset)(f))
		return
	}
	// The preset comes first wherever it stands: the other keys replace parts of it.
	list, _ := entries(node)
	for _, e := range list {
		if keyText(e.Key) == "preset" {
			if value := d.resolve(e.Value); value != nil {
				if name, ok := text(value); ok {
					_ = (*preset)(f).parse(name) // a fault is noted below
				}
			}
		}
	}
	m := struct {
		Preset             preset `yaml:"preset"`
		cluster.Conditions `yaml:",inline"`
	}{Conditions: f.Conditions}
	d.fields(path, node, reflect.ValueOf(&m).Elem())
	*f = Conditions{Conditions: m.Conditions}
}

// preset is Conditions in its short form.
type preset Conditions

func (p *preset) parse(name string) error {
	c, err := cluster.Preset(name)
	if err != nil {
		return fmt.Errorf("is %q; %s", clip(name), suggest(name, cluster.Presets()))
	}
	*p = preset{name, c}
	return nil
}
