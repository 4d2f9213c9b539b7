package cluster

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Bytes is an amount of memory: "16GiB", "24GB", or a plain number of bytes.
type Bytes int64

// UnmarshalYAML accepts a number or a number with a unit.
func (b *Bytes) UnmarshalYAML(unmarshal func(any) error) error {
	var s string
	if err := unmarshal(&s); err != nil {
		return err
	}
	v, err := humanize.ParseBytes(s)
	if err != nil || v == 0 || v > 1<<50 {
		return fmt.Errorf("%q is no amount of memory; write for example 16GiB or 24GB", s)
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

// Duration is a time.Duration written as in Go: "500ms", "2s", "1m30s".
type Duration time.Duration

func (d Duration) std() time.Duration { return time.Duration(d) }

// UnmarshalYAML accepts a non-negative duration with its unit.
func (d *Duration) UnmarshalYAML(unmarshal func(any) error) error {
	var s string
	if err := unmarshal(&s); err != nil {
		return err
	}
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is no duration; write a number with its unit, for example 500ms or 2s", s)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative; durations must be 0 or more", s)
	}
	*d = Duration(v)
	return nil
}

// MarshalYAML writes the duration as Go does.
func (d Duration) MarshalYAML() (any, error) { return time.Duration(d).String(), nil }

// Share is a Quorum in a file: a count (12), a share (0.75 or 75%), or all.
type Share Quorum

// UnmarshalYAML accepts the forms of Share.
func (q *Share) UnmarshalYAML(unmarshal func(any) error) error {
	var s string
	if err := unmarshal(&s); err != nil {
		return err
	}
	if s == "all" {
		*q = Share{Share: 1}
		return nil
	}
	if n, err := strconv.Atoi(s); err == nil {
		if n < 1 {
			return fmt.Errorf("quorum %s; it must be at least 1", s)
		}
		*q = Share{Count: n}
		return nil
	}
	v, ok := fraction(s)
	if !ok || v <= 0 || v > 1 {
		return fmt.Errorf("quorum %q; write a number of nodes (12), a share above 0 and up to 1 (0.75 or 75%%), or all", s)
	}
	*q = Share{Share: v}
	return nil
}

// MarshalYAML writes the count or the share.
func (q Share) MarshalYAML() (any, error) {
	if q.Count > 0 {
		return q.Count, nil
	}
	return q.Share, nil
}

// Grace is how long to wait for target nodes: a duration (500ms), or a share of the
// time the quorum took (0.1 or 10%).
type Grace struct {
	Duration Duration
	Share    float64
}

// UnmarshalYAML accepts the forms of Grace.
func (g *Grace) UnmarshalYAML(unmarshal func(any) error) error {
	var s string
	if err := unmarshal(&s); err != nil {
		return err
	}
	if v, ok := fraction(s); ok {
		if v < 0 || v > 1000 {
			return fmt.Errorf("grace %q; a share of the quorum time must lie in 0..1000", s)
		}
		*g = Grace{Share: v}
		return nil
	}
	return g.Duration.UnmarshalYAML(unmarshal)
}

// MarshalYAML writes the share or the duration.
func (g Grace) MarshalYAML() (any, error) {
	if g.Share > 0 {
		return g.Share, nil
	}
	return g.Duration.MarshalYAML()
}

// fraction reads "0.1" or "10%".
func fraction(s string) (float64, bool) {
	digits, percent := strings.CutSuffix(strings.TrimSpace(s), "%")
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

// seconds is the time to deliver so many bytes.
func (l Link) seconds(bytes int64) float64 {
	s := l.Latency.std().Seconds()
	if l.Bandwidth > 0 {
		s += float64(bytes) / l.Bandwidth
	}
	return s
}

// UnmarshalYAML accepts the forms of Link.
func (l *Link) UnmarshalYAML(unmarshal func(any) error) error {
	var s string
	if unmarshal(&s) == nil {
		return l.parse(s)
	}
	var m struct {
		Bandwidth string   `yaml:"bandwidth"`
		Latency   Duration `yaml:"latency"`
	}
	if err := unmarshal(&m); err != nil {
		return err
	}
	if m.Bandwidth != "" {
		if err := l.parse(m.Bandwidth); err != nil {
			return err
		}
	}
	l.Latency = m.Latency
	return nil
}

var bandwidthUnits = []struct {
	suffix string
	bytes  float64
}{
	{"Gbps", 1e9 / 8}, {"Gbit/s", 1e9 / 8}, {"Gb/s", 1e9 / 8},
	{"Mbps", 1e6 / 8}, {"Mbit/s", 1e6 / 8}, {"Mb/s", 1e6 / 8},
	{"GB/s", 1e9}, {"MB/s", 1e6}, {"GiB/s", 1 << 30}, {"MiB/s", 1 << 20},
}

func (l *Link) parse(s string) error {
	for _, u := range bandwidthUnits {
		if digits, ok := strings.CutSuffix(strings.TrimSpace(s), u.suffix); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
			if err == nil && v > 0 && v < 1e9 {
				l.Bandwidth = v * u.bytes
				return nil
			}
		}
	}
	return fmt.Errorf("link %q; write a bandwidth with its unit, for example 25Gbps or 3GB/s", s)
}

// MarshalYAML writes what UnmarshalYAML reads.
func (l Link) MarshalYAML() (any, error) {
	if l == (Link{}) {
		return nil, nil
	}
	m := map[string]any{"latency": l.Latency}
	if l.Bandwidth > 0 {
		m["bandwidth"] = strconv.FormatFloat(l.Bandwidth*8/1e9, 'g', -1, 64) + "Gbps"
	}
	return m, nil
}

// FileConditions is a preset's name, or a mapping with an optional preset whose given
// fields replace the preset's.
type FileConditions struct {
	Preset     string
	Conditions Conditions
}

// UnmarshalYAML accepts both forms.
func (f *FileConditions) UnmarshalYAML(unmarshal func(any) error) error {
	var name string
	if unmarshal(&name) == nil {
		return f.preset(name)
	}
	var fields map[string]any
	if err := unmarshal(&fields); err != nil {
		return err
	}
	if name, ok := fields["preset"].(string); ok {
		if err := f.preset(name); err != nil {
			return err
		}
		f.Preset = ""
	}
	m := struct {
		Preset     string `yaml:"preset"`
		Conditions `yaml:",inline"`
	}{Conditions: f.Conditions}
	if err := unmarshal(&m); err != nil {
		return err
	}
	f.Conditions = m.Conditions
	return nil
}

func (f *FileConditions) preset(name string) error {
	c, err := Preset(name)
	if err != nil {
		return err
	}
	f.Preset, f.Conditions = name, c
	return nil
}

// MarshalYAML writes the preset's name, or the conditions.
func (f FileConditions) MarshalYAML() (any, error) {
	if f.Preset != "" {
		return f.Preset, nil
	}
	return f.Conditions, nil
}
