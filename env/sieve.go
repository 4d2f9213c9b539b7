package env

import (
	"fmt"
	"math"
	"strings"
	"time"

	"evenkeel/cluster"
)

// Absurd counts impossible values in reports.
type Absurd struct {
	Reports int `json:"reports"` // of another number of nodes: ignored
	Waits   int `json:"waits"`   // rounds whose total wait is not a time above 0: a clock that jumped
	Times   int `json:"times"`   // measurements that are no time, or far beyond the round
	Sizes   int `json:"sizes"`   // measurements of more samples than were handed out
	Values  int `json:"values"`  // ages, norms and the like that are no numbers
	Frozen  int `json:"frozen"`  // measurements that were the same as three before though sizes differ; these count
}

// Any says whether there was anything.
func (a Absurd) Any() bool { return a != Absurd{} }

// String says it in words; "" where there was nothing.
func (a Absurd) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{a.Reports, "reports of another number of nodes"},
		{a.Waits, "waits that are no time (a clock jumped)"},
		{a.Times, "times that cannot be"},
		{a.Sizes, "measurements of more samples than were handed out"},
		{a.Values, "other values that are no numbers"},
		{a.Frozen, "times that stay the same whatever the size (not passed over)"},
	} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	return strings.Join(parts, ", ")
}

const (
	mostSeconds = 1e6 // of a measurement
	farBeyond   = 100 // times the round's wait
	slackBeyond = 60  // seconds more, as clocks differ
	frozenAfter = 3   // the same measurements in a row
)

// Sieve removes impossible values from reports, so that one broken clock or counter costs a measurement and not
// the run. The zero value is ready to use.
type Sieve struct {
	Counts Absurd
	clean  cluster.Report
	why    []string // by node, of the newest report; "": nothing
	said   bool     // why has something
	before []repeat
}

// repeat is a node's newest measurement, and how often it was the same though its size was not.
type repeat struct {
	seconds    float64
	size, same int
}

// Why says what is wrong with a node's part of the newest report; "": nothing.
func (s *Sieve) Why(node int) string {
	if node < len(s.why) {
		return s.why[node]
	}
	return ""
}

// Clean returns a report of c without its impossible values, nil if nothing is left. sizes are the shares that were handed
// out, and beyond says that nodes could do more. The report itself is not changed; the result is valid until the next call.
func (s *Sieve) Clean(c *cluster.Cluster, report *cluster.Report, sizes []int, beyond bool) *cluster.Report {
	if len(report.Nodes) != len(c.Nodes) || len(sizes) != len(c.Nodes) {
		s.Counts.Reports++
		return nil
	}
	if s.why == nil {
		s.why, s.before = make([]string, len(c.Nodes)), make([]repeat, len(c.Nodes))
	}
	if s.said {
		clear(s.why)
		s.said = false
	}
	out, wait, longest := report, report.Wait.Seconds(), 0.0
	for i := range report.Nodes {
		n := &report.Nodes[i]
		most := math.MaxInt
		if !beyond && n.Behind == 0 {
			most = max(sizes[i], c.Nodes[i].LeastShare())
		}
		values := broken(n)
		if counter, why := s.wrong(n, most, wait); values || counter != nil {
			out = s.own(out)
			s.say(i, why)
			n = &out.Nodes[i]
			s.mend(n, values, counter)
		}
		if n.Measured() {
			longest = max(longest, n.Seconds)
			s.repeated(i, n)
		}
	}
	if wait <= 0 && longest > 0 {
		s.Counts.Waits++
		out = s.own(out)
		out.Wait = time.Duration(longest * 1e9)
	}
	if v := report.Counted; !(v >= 0 && v <= math.MaxInt32) {
		s.Counts.Values++
		out = s.own(out)
		out.Counted = float64(max(report.Accepted, 0))
	}
	return out
}

// own is the report as a copy.
func (s *Sieve) own(report *cluster.Report) *cluster.Report {
	if report == &s.clean {
		return report
	}
	nodes := append(s.clean.Nodes[:0], report.Nodes...)
	s.clean = *report
	s.clean.Nodes = nodes
	return &s.clean
}

func (s *Sieve) say(node int, why string) { s.why[node], s.said = why, true }

// broken says whether a number beside the measurement is none.
func broken(n *cluster.NodeReport) bool {
	sum := n.Age + n.Norm + n.Agree + n.Idle + n.Busy + n.Joules
	return math.IsNaN(sum) || math.IsInf(sum, 0)
}

// wrong says what is wrong with a node's measurement of at most so many samples, in a round of wait seconds, and which
// counter counts it; nil: nothing is wrong.
func (s *Sieve) wrong(n *cluster.NodeReport, most int, wait float64) (counter *int, why string) {
	whole := n.Status == cluster.In || n.Status == cluster.Refused
	switch t := n.Seconds; {
	case !whole && n.Status != cluster.Late:
	case !(t >= 0) || t == 0 && whole || t > mostSeconds || n.Behind == 0 && wait > 0 && t > farBeyond*wait+slackBeyond:
		return &s.Counts.Times, fmt.Sprintf("a time of %g s", t)
	case n.Size < 0 || whole && n.Size > most:
		return &s.Counts.Sizes, fmt.Sprintf("a measurement of %d samples, more than it was handed", n.Size)
	}
	return nil, "a value that is no number"
}

// mend takes the impossible values out of a node's part of a report; counter counts a wrong measurement, nil: it is sound. The
// only thing learnt from a wrong measurement is that the node is there.
func (s *Sieve) mend(n *cluster.NodeReport, values bool, counter *int) {
	if values {
		s.Counts.Values++
		for _, v := range []*float64{&n.Age, &n.Norm, &n.Agree, &n.Idle, &n.Busy, &n.Joules} {
			if math.IsNaN(*v) || math.IsInf(*v, 0) {
				*v = 0
			}
		}
	}
	if counter != nil {
		*counter++
		n.Seconds, n.Size, n.Steps = 0, 0, 0
	}
}

// repeated counts measurements that stay the same though sizes do not.
func (s *Sieve) repeated(i int, n *cluster.NodeReport) {
	b := &s.before[i]
	switch {
	case n.Seconds != b.seconds:
		b.same = 0
	case n.Size != b.size:
		b.same++
	}
	b.seconds, b.size = n.Seconds, n.Size
	if b.same >= frozenAfter {
		s.Counts.Frozen++
		s.say(i, fmt.Sprintf("%g s again, whatever its size; believed all the same", n.Seconds))
	}
}
