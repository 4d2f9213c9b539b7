package profile

import (
	"embed"
	"encoding/csv"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strconv"
	"strings"
	"sync"
)

//go:embed catalogue/*.csv catalogue/SOURCES.md
var files embed.FS

// Embedded returns the catalogue that comes with Evenkeel: the measured profiles, their
// devices, workloads and sources. Every call returns a catalogue of its own; the
// profiles in it are shared.
func Embedded() *Catalogue {
	c := embedded()
	return &Catalogue{maps.Clone(c.devices), maps.Clone(c.workloads), maps.Clone(c.sources), maps.Clone(c.profiles)}
}

// embedded parses once. It panics if the embedded files have a fault, which the tests find.
var embedded = sync.OnceValue(func() *Catalogue {
	c, err := load(files, "catalogue")
	if err != nil {
		panic(err)
	}
	return c
})

// load reads the side tables and a file of points per source that has one.
func load(fsys fs.FS, dir string) (*Catalogue, error) {
	c := &Catalogue{map[string]Device{}, map[string]Workload{}, map[string]Source{}, map[pair]*Profile{}}
	t := tables{fsys: fsys, dir: dir}
	t.read("sources.csv", "source,repository,commit,licence,files", func(r []string) {
		c.sources[r[0]] = Source{r[0], r[1], r[2], r[3], r[4]}
	})
	t.read("devices.csv", "device,memory_bytes,tflops_fp32,tflops_fp16,bandwidth_gbs,split,torch,source", func(r []string) {
		c.devices[r[0]] = Device{Name: r[0], MemoryBytes: t.integer(r[1]), TFLOPS32: t.number(r[2]), TFLOPS16: t.number(r[3]), Bandwidth: t.number(r[4]), Split: t.split(r[5]), Torch: r[6], DataSheet: r[7]}
	})
	t.read("power.csv", "device,idle_watts,busy_watts,samples,source", func(r []string) {
		d, ok := c.devices[r[0]]
		if d.IdleWatts, d.BusyWatts = t.number(r[1]), t.number(r[2]); !ok || d.IdleWatts > d.BusyWatts || t.integer(r[3]) == 0 || c.sources[r[4]].Key == "" {
			t.fail("power.csv: no such device or source, or bad figures: %v", r)
			return
		}
		c.devices[r[0]] = d
	})
	t.read("workloads.csv", "workload,parameters,unit,dtype,split", func(r []string) {
		c.workloads[r[0]] = Workload{r[0], t.integer(r[1]), r[2], r[3], t.split(r[4])}
	})
	for source := range c.sources {
		name := source + ".csv"
		f, err := fsys.Open(path.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue // a source of a side table; a lost file of points shows in series.csv
		}
		if err != nil {
			return nil, err
		}
		read, err := parse(name, f)
		f.Close()
		if err != nil {
			return nil, err
		}
		for _, p := range read {
			k := pair{p.Device, p.Workload}
			if c.devices[p.Device].Name == "" || c.workloads[p.Workload].Name == "" || c.profiles[k] != nil {
				return nil, fmt.Errorf("%s: %s on %s: not in the tables, or twice", name, p.Workload, p.Device)
			}
			p.Source = "" // set by series.csv below
			c.profiles[k] = p
		}
	}
	t.read("series.csv", "device,workload,source,layers,peak_source,peak_cluster,peak_measured_to", func(r []string) {
		p := c.profiles[pair{r[0], r[1]}]
		if p == nil || c.sources[r[2]].Key == "" {
			t.fail("no such profile or source: %v", r)
			return
		}
		p.Source, p.Note = r[2], note(r[3], r[4], r[5], r[6])
	})
	for k, p := range c.profiles {
		if p.Source == "" {
			t.fail("series.csv: %s on %s has no source", k.workload, k.device)
		}
	}
	return c, t.err
}

func note(layers, peakSource, peakCluster, peakTo string) string {
	text := "a whole training step"
	switch layers {
	case "0":
		text = "the sum of forward + backward times of all layers, each measured alone"
	case "1":
	default:
		text = "one layer's forward + backward kernel time x " + layers + " layers"
	}
	if peakSource != "" {
		text += "; peak memory without sharded model state, measured up to micro-batch " + peakTo + " (" + peakSource + ", cluster " + peakCluster + ")"
	}
	return text
}

// tables reads the side tables and keeps the first error.
type tables struct {
	fsys fs.FS
	dir  string
	err  error
}

func (t *tables) fail(format string, args ...any) {
	if t.err == nil {
		t.err = fmt.Errorf("embedded catalogue: "+format, args...)
	}
}

func (t *tables) read(name, header string, row func([]string)) {
	b, err := fs.ReadFile(t.fsys, path.Join(t.dir, name))
	if err != nil {
		t.fail("%w", err)
		return
	}
	rows, err := csv.NewReader(strings.NewReader(string(b))).ReadAll()
	if err != nil || len(rows) == 0 || strings.Join(rows[0], ",") != header {
		t.fail("%s: header is not %s, or %v", name, header, err)
		return
	}
	for _, r := range rows[1:] {
		row(r)
	}
}

func (t *tables) integer(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		t.fail("%q is not a count", s)
	}
	return n
}

func (t *tables) number(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil || !(v > 0) {
		t.fail("%q is not above zero", s)
	}
	return v
}

func (t *tables) split(s string) Split {
	if s != string(Train) && s != string(HeldOut) {
		t.fail("%q is no split", s)
	}
	return Split(s)
}
