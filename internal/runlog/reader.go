package runlog

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"evenkeel/cluster"
	"evenkeel/cluster/clusterfile"
	"evenkeel/cluster/profile"
	"evenkeel/cluster/trace"
)

// Reader reads a run log. Errors about its content wrap errLog and name the line.
type Reader struct {
	Header  Header
	Cluster *cluster.Cluster // as the header describes it; of a live job, as its newest start does; nil before the first
	Cut     bool             // after io.EOF: the last line lacks its end and was left out

	in     *bufio.Reader
	buffer []byte
	line   int
	sum    uint64

	generation int // of a live job; 0: none yet
	round      int // its newest
}

// NewReader reads the header and builds the cluster.
func NewReader(in io.Reader) (*Reader, error) {
	r := &Reader{in: bufio.NewReader(in)}
	if err := r.next(&r.Header); err != nil {
		if errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: it holds no whole line", errLog)
		}
		return nil, err
	}
	h := &r.Header
	if h.Source == Live {
		if err := h.Weights.Validate(); err != nil {
			return nil, r.bad("weights: %w", err)
		}
		return r, nil
	}
	if h.Source != "" {
		return nil, r.bad("source: is %q; it must be %q, or be left out", h.Source, Live)
	}
	if err := h.Conditions.Validate(); err != nil {
		return nil, r.bad("conditions: %w", err)
	}
	if replay := &h.Conditions.Replay; replay.File != "" {
		var err error
		if replay.Trace, err = trace.Read(strings.NewReader(h.Trace), "trace", replay.Columns); err != nil {
			return nil, r.bad("%w", err)
		}
	}
	if err := h.Weights.Validate(); err != nil {
		return nil, r.bad("weights: %w", err)
	}
	catalogue := profile.Embedded()
	if err := catalogue.AddReader("profiles", strings.NewReader(h.Profiles)); err != nil {
		return nil, r.bad("%w", err)
	}
	var err error
	if _, r.Cluster, err = clusterfile.Read(strings.NewReader(h.Cluster), "cluster", catalogue); err != nil {
		return nil, r.bad("%w", err)
	}
	if err := setEqualSteps(r.Cluster, h.EqualSteps); err != nil {
		return nil, r.bad("%w", err)
	}
	return r, nil
}

// Next reads a round; io.EOF after the last. A last line without its end, which a
// killed run may leave, does not count.
func (r *Reader) Next() (*Entry, error) {
	var e Entry
	if err := r.next(&e); err != nil {
		return nil, err
	}
	if e.Start != nil {
		if err := r.start(e.Start); err != nil {
			return nil, err
		}
		return &e, nil
	}
	if r.Cluster == nil {
		return nil, r.bad("a round before the first start")
	}
	n := len(r.Cluster.Nodes)
	for _, l := range []struct {
		field string
		is    int
	}{{"sizes", len(e.Sizes)}, {"overhead", len(e.Overhead)}, {"per_sample", len(e.PerSample)}, {"report.nodes", len(e.Report.Nodes)}} {
		if l.is != n {
			return nil, r.bad("%s: %d entries for %d nodes", l.field, l.is, n)
		}
	}
	if err := r.number(&e); err != nil {
		return nil, err
	}
	if w := e.Weights; w != nil {
		if err := w.Validate(); err != nil {
			return nil, r.bad("weights: %w", err)
		}
	}
	if err := r.participation(&e); err != nil {
		return nil, err
	}
	for i := range n {
		switch p, o := e.PerSample[i], e.Overhead[i]; {
		case e.Sizes[i] < 0 || e.Sizes[i] > cluster.MaxGlobalBatch:
			return nil, r.bad("sizes[%d]: is %d; it must lie in 0..%d", i, e.Sizes[i], cluster.MaxGlobalBatch)
		case !(p > 0) || math.IsInf(p, 0) || !(o >= 0) || math.IsInf(o, 0):
			return nil, r.bad("node %d: performance parameters %g and %g; the seconds per sample must be above 0, the overhead at least 0", i, o, p)
		case e.Report.Nodes[i].Status > cluster.Lost:
			return nil, r.bad("report.nodes[%d].status: is %d; it must lie in 0..%d", i, e.Report.Nodes[i].Status, cluster.Lost)
		}
	}
	return &e, nil
}

// number checks the number of a round. Of a live job rounds may be missing.
func (r *Reader) number(e *Entry) error {
	if r.Header.Source == Live {
		if e.Report.Round <= r.round || e.Report.Plan < 1 {
			return r.bad("report.round: is %d of plan %d after round %d; rounds rise, and plans count from 1", e.Report.Round, e.Report.Plan, r.round)
		}
		r.round = e.Report.Round
		return nil
	}
	if round := r.line - 2; e.Report.Round != round {
		return r.bad("report.round: is %d, round %d was expected", e.Report.Round, round)
	}
	return nil
}

// participation checks the numbers of the nodes that were probed, limited or left out.
func (r *Reader) participation(e *Entry) error {
	n := len(e.Sizes)
	for k, i := range e.Probe {
		if i < 0 || i >= n {
			return r.bad("probe[%d]: is %d; it must lie in 0..%d", k, i, n-1)
		}
	}
	for k, l := range e.Limits {
		if l.Node < 0 || l.Node >= n || l.MicroBatch < 1 {
			return r.bad("limits[%d]: node %d, micro-batch %d cannot be", k, l.Node, l.MicroBatch)
		}
	}
	for k, o := range e.LeftOut {
		if o.Node < 0 || o.Node >= n || e.Sizes[o.Node] > 0 {
			return r.bad("left_out[%d].node: is %d; it must be a node with a size of 0", k, o.Node)
		}
	}
	return nil
}

func (r *Reader) bad(format string, args ...any) error {
	return fmt.Errorf("%w: line %d: %w", errLog, r.line, fmt.Errorf(format, args...))
}

// next decodes the next line into v after checking its checksum.
func (r *Reader) next(v any) error {
	line, err := r.read()
	if err != nil {
		return err
	}
	// Another format or version may have other checksums, so it is checked first.
	if h, ok := v.(*Header); ok {
		var what struct {
			Format  string `json:"format"`
			Version int    `json:"version"`
		}
		if err := json.Unmarshal(line, &what); err != nil || what.Format != formatName {
			return r.bad("no run log of evenkeel: it begins with {\"format\":\"%s\",...}", formatName)
		}
		if what.Version != formatVersion {
			return r.bad("version %d; this program reads version %d", what.Version, formatVersion)
		}
		*h = Header{}
	}
	body := line[:max(len(line)-sumLength, 0)]
	sum := checksum(r.sum, body)
	if want := fmt.Appendf(nil, sumFormat, sum); !bytes.Equal(line[len(body):], want) {
		return r.bad("the checksum does not match: the line, or one before it, was changed or is missing")
	}
	r.sum = sum
	d := json.NewDecoder(bytes.NewReader(append(body, '}')))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return r.bad("%w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return r.bad("more text after the object")
	}
	return nil
}

// read returns the next line without its end; valid until the next call.
func (r *Reader) read() ([]byte, error) {
	r.line++
	r.buffer = r.buffer[:0]
	for {
		part, err := r.in.ReadSlice('\n')
		if len(r.buffer)+len(part) > maxLineBytes {
			return nil, r.bad("longer than %d bytes", maxLineBytes)
		}
		r.buffer = append(r.buffer, part...)
		switch {
		case err == nil:
			return slices.Clip(r.buffer[:len(r.buffer)-1]), nil
		case errors.Is(err, bufio.ErrBufferFull):
		default:
			r.Cut = len(r.buffer) > 0
			return nil, err // io.EOF too: an unfinished line does not count
		}
	}
}
