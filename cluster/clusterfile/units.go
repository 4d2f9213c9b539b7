package clusterfile

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

// fraction reads "0.1" or "10%".
func fraction(s string) (float64, bool) {
	digits, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
	if strings.ContainsAny(digits, "_xX") { // Go's notation, which clients in other languages do not read
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

// Share is a share in a file: 0.1 or 10%.
type Share float64

func (s *Share) parse(text string) error {
	v, ok := fraction(text)
	if *s = Share(v); !ok {
		return fmt.Errorf("is %q; write a share, such as 0.1 or 10%%", clip(text))
	}
	return nil
}

// Link is a node's network link. In a file it is a bandwidth ("25Gbps", "3GB/s"), or
// a mapping of bandwidth, latency and start. The zero value costs no time.
type Link struct {
	Bandwidth float64  // bytes per second; 0: not modelled
	Latency   Duration // added to every gradient
	Start     Duration // of a collective, beside its messages; only plans count it
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
		Start     Duration  `yaml:"start"`
	}{}
	d.fields(path, node, reflect.ValueOf(&m).Elem())
	*l = Link{float64(m.Bandwidth), m.Latency, m.Start}
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
