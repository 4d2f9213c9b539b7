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
	Waits   int `json:"waits"`   // rounds whose total wait is not above 0: a clock jumped
	Times   int `json:"times"`   // measured times that are impossible, or far beyond the round
	Sizes   int `json:"sizes"`   // measurements of more samples than were handed out, or of fewer than 0
	Values  int `json:"values"`  // ages, norms and other values that are not finite, and impossible pauses
	Frozen  int `json:"frozen"`  // times that repeat although sizes change; they are believed
}

// Any says whether there was anything.
func (a Absurd) Any() bool { return a != Absurd{} }

// String describes the counts; "" if all are 0.
func (a Absurd) String() string {
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{
		{a.Reports, "reports of another number of nodes"},
		{a.Waits, "impossible waits (a clock jumped)"},
		{a.Times, "impossible times"},
		{a.Sizes, "impossible sizes"},
		{a.Values, "other values that are not finite or possible"},
		{a.Frozen, "times that stay the same although sizes change (believed)"},
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
	said   bool     // why is not all empty
	before []repeat
}

// repeat is a node's newest measurement, and how often its time repeated although the size changed.
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

// Clean returns a report of c without its impossible values; nil if it has another number of nodes. sizes are the shares that
// were handed out, and beyond says that nodes could do more. The report is not changed; the result is valid until the next call.
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

// own returns the sieve's copy of the report.
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

// broken says whether a value beside the measurement is not finite, or a pause impossible.
func broken(n *cluster.NodeReport) bool {
	sum := n.Age + n.Norm + n.Agree + n.Idle + n.Busy + n.Joules
	return math.IsNaN(sum) || math.IsInf(sum, 0) || !(n.Pause >= 0 && n.Pause <= mostSeconds)
}

// wrong says what is wrong with a node's measurement of at most most samples, in a round of wait seconds, and which
// counter counts it; nil: nothing is wrong, and why is the text for other values.
func (s *Sieve) wrong(n *cluster.NodeReport, most int, wait float64) (counter *int, why string) {
	whole := n.Status == cluster.In || n.Status == cluster.Refused
	switch t := n.Seconds; {
	case !whole && n.Status != cluster.Late:
	case !(t >= 0) || t == 0 && whole || t > mostSeconds || n.Behind == 0 && wait > 0 && t > farBeyond*wait+slackBeyond:
		return &s.Counts.Times, fmt.Sprintf("an impossible time of %g s", t)
	case n.Size < 0 || whole && n.Size > most:
		return &s.Counts.Sizes, fmt.Sprintf("an impossible size of %d samples", n.Size)
	}
	return nil, "a value that is not finite or possible"
}

// mend removes the impossible values from a node's part of a report; counter counts a wrong measurement, nil: it is sound. A
// wrong measurement shows only that the node is there.
func (s *Sieve) mend(n *cluster.NodeReport, values bool, counter *int) {
	if values {
		s.Counts.Values++
		if !(n.Pause >= 0 && n.Pause <= mostSeconds) {
			n.Pause = 0
		}
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

// repeated counts measured times that stay the same although sizes change.
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
		s.say(i, fmt.Sprintf("%g s again, although its size changed; believed", n.Seconds))
	}
}
