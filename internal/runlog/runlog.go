// Package runlog writes a run to a file, one round per line, and reads and replays it. See the Example.
//
// The format is described in docs/reference/formats/runlog.md.
package runlog

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"evenkeel/cluster"
	"evenkeel/cluster/profile"
	"evenkeel/internal/badinput"
)

// formatName and formatVersion open every log.
const (
	formatName    = "evenkeel-runlog"
	formatVersion = 2
)

// maxLineBytes is the longest line that is read: a round of cluster.MaxNodes nodes fits.
const maxLineBytes = 64 << 20

// errLog marks every error about the content of a run log: bad input.
var errLog = badinput.New("runlog: invalid log")

// Header is the first line: what the run started from.
type Header struct {
	Format     string             `json:"format"`
	Version    int                `json:"version"`
	Evenkeel   string             `json:"evenkeel"`           // version of the program
	Source     string             `json:"source,omitempty"`   // Live, or "" for the simulator's
	Name       string             `json:"name"`               // of the cluster: its file's, or that of an embedded one
	Cluster    string             `json:"cluster,omitempty"`  // text of the cluster file; "" for a live job
	Profiles   string             `json:"profiles,omitempty"` // profile CSV of every profile that the cluster uses
	Preset     string             `json:"preset,omitempty"`   // name of the conditions, where they have one
	Conditions cluster.Conditions `json:"conditions"`
	Trace      string             `json:"trace,omitempty"` // text of the trace that the conditions replay
	Seed       uint64             `json:"seed,omitzero"`
	Policy     string             `json:"policy"` // file, or "embedded"
	Weights    cluster.Objectives `json:"weights"`
	EqualSteps int                `json:"equal_steps,omitzero"` // cluster.Cluster.EqualSteps, also where the file leaves it out
}

// NewHeader returns a header with the cluster and its profiles in it; text is the
// cluster file's.
func NewHeader(text string, c *cluster.Cluster) Header {
	return Header{Format: formatName, Version: formatVersion, Cluster: text, Profiles: profiles(c), EqualSteps: c.EqualSteps()}
}

// NewLiveHeader returns the header of a job's log; its clusters come with its starts.
func NewLiveHeader() Header { return Header{Format: formatName, Version: formatVersion, Source: Live} }

// profiles writes the profiles of the nodes, shown and hidden, as a profile file.
func profiles(c *cluster.Cluster) string {
	var b strings.Builder
	w := csv.NewWriter(&b)
	write := func(fields ...string) { _ = w.Write(fields) } // a Builder cannot fail
	write("device", "workload", "micro_batch", "seconds", "peak_bytes")
	seen := map[*profile.Profile]bool{nil: true}
	for i := range c.Nodes {
		for _, p := range []*profile.Profile{c.Nodes[i].Profile, c.Nodes[i].Hidden.Profile} {
			if seen[p] {
				continue
			}
			seen[p] = true
			for _, q := range p.Points {
				peak := ""
				if q.PeakBytes > 0 {
					peak = strconv.FormatInt(q.PeakBytes, 10)
				}
				write(p.Device, p.Workload, strconv.Itoa(q.MicroBatch), strconv.FormatFloat(q.Seconds, 'g', -1, 64), peak)
			}
		}
	}
	w.Flush()
	return b.String()
}

// Entry is one round, or the start of a live job's process group. The slices are in node order.
type Entry struct {
	Start     *Start          `json:"start,omitempty"` // nil: a round; else the entry holds nothing more
	Sizes     []int           `json:"sizes"`           // handed out; 0: absent
	Overhead  []float64       `json:"overhead"`        // the performance parameters that the sizes follow from: seconds
	PerSample []float64       `json:"per_sample"`      // the same: seconds per sample
	Collect   cluster.Collect `json:"collect"`         // the rule of the round
	Probe     []int           `json:"probe,omitempty"` // nodes whose first micro-step under a deadline was to be their smallest
	Report    cluster.Report  `json:"report"`          // what came back
	Note
}

// Note holds the fields that only some entries have.
type Note struct {
	Weights *cluster.Objectives `json:"weights,omitempty"` // from this round on, where they changed
	Explain json.RawMessage     `json:"explain,omitempty"` // why one node got its size, where that was asked for
	LeftOut []LeftOut           `json:"left_out,omitempty"`
	Limits  []Limit             `json:"limits,omitempty"` // that were given by hand since the round before
}

// Limit is the largest micro-batch of a node.
type Limit struct {
	Node       int `json:"node"` // in node order
	MicroBatch int `json:"micro_batch"`
}

// LeftOut is a node that was there and got no share.
type LeftOut struct {
	Node int    `json:"node"` // in node order
	Why  string `json:"why"`  // "too slow" or "silent"
}

// Plan is the round as it was handed out; only Finish is not logged.
func (e *Entry) Plan() cluster.Plan {
	p := cluster.Plan{Sizes: e.Sizes, Collect: e.Collect, Perf: make([]cluster.Performance, len(e.Overhead))}
	for i := range p.Perf {
		p.Perf[i] = cluster.Performance{Overhead: e.Overhead[i], PerSample: e.PerSample[i]}
	}
	if len(e.Probe) > 0 {
		p.Probe = make([]bool, len(e.Sizes))
		for _, i := range e.Probe {
			p.Probe[i] = true
		}
	}
	return p
}

// Writer writes a run log. Every line goes out in one piece as soon as its round is
// over, so that a run that is killed leaves whole lines.
type Writer struct {
	to    io.Writer
	close func() error
	line  bytes.Buffer
	entry Entry
	sum   uint64 // of the line before
}

// Create starts a log in the file at path, which it replaces.
func Create(path string, h Header) (*Writer, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	w, err := newWriter(f, h)
	if err != nil {
		f.Close()
		return nil, err
	}
	w.close = func() error { return errors.Join(f.Sync(), f.Close()) }
	return w, nil
}

// newWriter starts a log by writing its header.
func newWriter(to io.Writer, h Header) (*Writer, error) {
	w := &Writer{to: to, close: func() error { return nil }}
	if t := h.Conditions.Replay.Trace; t != nil {
		h.Trace = t.Source
	}
	return w, w.write(h)
}

// Round writes one round.
func (w *Writer) Round(plan cluster.Plan, perf []cluster.Performance, report *cluster.Report, note Note) error {
	e := &w.entry
	e.Start, e.Sizes, e.Collect, e.Report, e.Note = nil, plan.Sizes, plan.Collect, *report, note
	e.Overhead, e.PerSample, e.Probe = e.Overhead[:0], e.PerSample[:0], e.Probe[:0]
	for i, probe := range plan.Probe {
		if probe && plan.Collect.Deadline > 0 {
			e.Probe = append(e.Probe, i)
		}
	}
	for _, p := range perf {
		e.Overhead, e.PerSample = append(e.Overhead, p.Overhead), append(e.PerSample, p.PerSample)
	}
	return w.write(e)
}

// Close ends the log and, after Create, syncs and closes the file.
func (w *Writer) Close() error { return w.close() }

// write writes v as one line, its checksum as the last field.
func (w *Writer) write(v any) error {
	w.line.Reset()
	e := json.NewEncoder(&w.line)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("runlog: %w", err)
	}
	w.line.Truncate(w.line.Len() - len("}\n"))
	w.sum = checksum(w.sum, w.line.Bytes())
	fmt.Fprintf(&w.line, sumFormat+"\n", w.sum)
	if _, err := w.to.Write(w.line.Bytes()); err != nil {
		return fmt.Errorf("runlog: %w", err)
	}
	return nil
}

const (
	sumFormat = `,"xxh3":"%016x"}`
	sumLength = len(`,"xxh3":"0123456789abcdef"}`)
)

// checksum of a line depends on the line before, so that a missing line is noticed.
func checksum(before uint64, line []byte) uint64 { return xxh3.HashSeed(line, before) }
