package cluster

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/goccy/go-yaml/ast"
)

// Limits of the values in a file.
const (
	maxBytes    = 1 << 50
	maxDuration = 1000 * time.Hour
	minLink     = 1e3  // bytes per second
	maxLink     = 1e15 // bytes per second
	maxWatts    = 10_000
)

// Bytes is an amount of memory: "16GiB", "24GB", or a plain number of bytes; above 0,
// up to 1 PiB.
type Bytes int64

func (b *Bytes) parse(s string) error {
	v, err := humanize.ParseBytes(s)
	if err != nil || v == 0 || v > maxBytes || strings.Contains(s, ",") {
		return fmt.Errorf("is %q; write an amount of memory above 0 and up to 1PiB, for example 16GiB or 24GB", clip(s))
	}
	*b = Bytes(v)
	return nil
}

// MarshalYAML writes the shortest exact form.
func (b Bytes) MarshalYAML() (any, error) {
	if b%(1<<30) == 0 {
		return fmt.Sprintf("%dGiB", b>>30), nil
	}
	return int64(b), nil
}

// Duration is a time.Duration written as in Go: "500ms", "2s", "1m30s"; 0 to 1000h.
type Duration time.Duration

func (d Duration) std() time.Duration { return time.Duration(d) }

func (d *Duration) parse(s string) error {
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return fmt.Errorf("is %q; write a duration with its unit, for example 500ms or 2s", clip(s))
	case v < 0 || v > maxDuration:
		return fmt.Errorf("is %s; durations must lie in 0..1000h", s)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes the duration as Go does.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// fraction reads a decimal number, "0.1" or "10%".
func fraction(s string) (float64, bool) {
	digits, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	if strings.ContainsAny(digits, "_xX") { // of Go's own notation, which clients in other languages do not read
		return 0, false
	}
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, false
	}
	if percent {
		v /= 100
	}
	return v, true
}

// Link is a node's network link. In a file it is a bandwidth ("25Gbps", "3GB/s"), or
// a mapping of bandwidth and latency. The zero value costs no time.
type Link struct {
	Bandwidth float64  // bytes per second; 0: not modelled
	Latency   Duration // added to every gradient
}

// seconds is the time to deliver a number of bytes.
func (l Link) seconds(bytes int64) float64 {
	s := l.Latency.std().Seconds()
	if l.Bandwidth > 0 {
		s += float64(bytes) / l.Bandwidth
	}
	return s
}

func (l *Link) decode(d *decoder, path string, node ast.Node) {
	if _, ok := text(node); ok {
		d.scalar(path, node, (*bandwidth)(&l.Bandwidth))
		return
	}
	m := struct {
		Bandwidth bandwidth `yaml:"bandwidth"`
		Latency   Duration  `yaml:"latency"`
	}{}
	d.fields(path, node, reflect.ValueOf(&m).Elem())
	*l = Link{float64(m.Bandwidth), m.Latency}
}

// MarshalYAML writes the mapping; null for the zero value.
func (l Link) MarshalYAML() (any, error) {
	if l == (Link{}) {
		return nil, nil
	}
	m := struct {
		Bandwidth string   `yaml:"bandwidth,omitempty"`
		Latency   Duration `yaml:"latency,omitempty"`
	}{Latency: l.Latency}
	if l.Bandwidth > 0 {
		m.Bandwidth = bandwidth(l.Bandwidth).String()
	}
	return m, nil
}

// bandwidth is in bytes per second.
type bandwidth float64

var bandwidthUnits = []struct {
	suffix string
	bytes  float64
}{
	{"Gbps", 1e9 / 8}, {"Gbit/s", 1e9 / 8}, {"Gb/s", 1e9 / 8},
	{"Mbps", 1e6 / 8}, {"Mbit/s", 1e6 / 8}, {"Mb/s", 1e6 / 8},
	{"GB/s", 1e9}, {"MB/s", 1e6}, {"GiB/s", 1 << 30}, {"MiB/s", 1 << 20},
	{"B/s", 1}, // last: the others end in it too
}

func (b *bandwidth) parse(s string) error {
	for _, u := range bandwidthUnits {
		if digits, ok := strings.CutSuffix(strings.TrimSpace(s), u.suffix); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
			if v *= u.bytes; err == nil && v >= minLink && v <= maxLink {
				*b = bandwidth(v)
				return nil
			}
			break
		}
	}
	return fmt.Errorf("is %q; write a bandwidth with its unit, for example 25Gbps or 3GB/s", clip(s))
}

// String is in Gbps where that reads back as the same number.
func (b bandwidth) String() string {
	s, again := strconv.FormatFloat(float64(b)*8/1e9, 'g', -1, 64)+"Gbps", bandwidth(0)
	if again.parse(s) != nil || again != b {
		s = strconv.FormatFloat(float64(b), 'g', -1, 64) + "B/s"
	}
	return s
}

// FileConditions is a preset's name, or a mapping with an optional preset whose given
// fields replace the preset's.
type FileConditions struct {
	Preset     string
	Conditions Conditions
}

func (f *FileConditions) decode(d *decoder, path string, node ast.Node) {
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
		Preset     preset `yaml:"preset"`
		Conditions `yaml:",inline"`
	}{Conditions: f.Conditions}
	d.fields(path, node, reflect.ValueOf(&m).Elem())
	_, data := d.lines[path+".lengths.data"]
	if _, values := d.lines[path+".lengths.values"]; values && !data {
		m.Lengths.Data = "" // they take the place of the preset's
	}
	*f = FileConditions{Conditions: m.Conditions}
}

// preset is FileConditions in its short form.
type preset FileConditions

func (p *preset) parse(name string) error {
	c, err := Preset(name)
	if err != nil {
		return fmt.Errorf("is %q; %s", clip(name), suggest(name, Presets()))
	}
	*p = preset{name, c}
	return nil
}

// MarshalYAML writes the preset's name, or the conditions.
func (f FileConditions) MarshalYAML() (any, error) {
	if f.Preset != "" {
		return f.Preset, nil
	}
	return f.Conditions, nil
}

func (l *Level) decode(d *decoder, path string, node ast.Node) {
	if _, ok := text(node); ok {
		var b bandwidth
		d.scalar(path, node, &b)
		l.Rates = []Rate{{1, float64(b)}}
		return
	}
	var m levelFields
	d.fields(path, node, reflect.ValueOf(&m).Elem())
	*l = m.level()
}

// levelFields is a Level as a file has it.
type levelFields struct {
	Bandwidth rates    `yaml:"bandwidth"`
	Latency   Duration `yaml:"latency"`
	Secure    bool     `yaml:"secure"`
}

func (m levelFields) level() Level { return Level{m.Latency, m.Bandwidth, m.Secure} }

func (s *FileSwitch) decode(d *decoder, path string, node ast.Node) {
	var m struct {
		Name        string `yaml:"name"`
		Up          string `yaml:"up"`
		levelFields `yaml:",inline"`
	}
	d.fields(path, node, reflect.ValueOf(&m).Elem())
	*s = FileSwitch{Name: m.Name, Level: m.level(), Up: m.Up}
}

// rates is one bandwidth, or a mapping of message sizes to bandwidths.
type rates []Rate

func (r *rates) decode(d *decoder, path string, node ast.Node) {
	if _, ok := text(node); ok {
		var b bandwidth
		d.scalar(path, node, &b)
		*r = rates{{1, float64(b)}}
		return
	}
	list, ok := entries(node)
	if !ok || len(list) == 0 {
		d.fault(path, "must be a bandwidth, or a mapping of sizes to bandwidths as {1MiB: 2GB/s, 64MiB: 4GB/s}")
		return
	}
	for _, e := range list {
		key, _ := text(e.Key)
		var size Bytes
		if err := size.parse(key); err != nil {
			d.fault(path, "has a size that %s", err)
			return
		}
		var b bandwidth
		at := path + "." + keyText(e.Key)
		d.lines[at] = e.Key.GetToken().Position.Line
		d.value(at, e.Value, reflect.ValueOf(&b).Elem())
		if n := len(*r); n > 0 && (*r)[n-1].Size >= size {
			d.fault(at, "does not rise from the size before it")
			return
		}
		*r = append(*r, Rate{size, float64(b)})
	}
}

// ParseBytes reads an amount of memory as a cluster file has it: 16GiB, 24GB or a plain number of bytes.
func ParseBytes(s string) (Bytes, error) {
	var b Bytes
	err := b.parse(s)
	return b, err
}

// ParseDuration reads a duration as a cluster file has it: 500ms, 2s.
func ParseDuration(s string) (Duration, error) {
	var d Duration
	err := d.parse(s)
	return d, err
}
