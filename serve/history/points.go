package history

import (
	"math"
	"slices"

	"evenkeel/cluster"
)

// mostWhole is how many points a job's whole life is told in. It is even.
const mostWhole = 512

// point is what some rounds came to: sums, so that points can be joined.
type point struct {
	number                int     // of the newest round
	at                    float64 // the same: seconds since the job was created
	rounds                float64
	seconds, samples      float64
	good                  float64 // samples, each with what it is worth
	idle                  float64 // seconds that a node waited in the mean
	evenSeconds, evenGood float64 // of equal shares, where they can be predicted
	shares                []float32
}

// join is a point and the one after it as one.
func join(a, b point) point {
	j := point{
		number: b.number, at: b.at, rounds: a.rounds + b.rounds, seconds: a.seconds + b.seconds, samples: a.samples + b.samples, good: a.good + b.good,
		idle: a.idle + b.idle, evenSeconds: a.evenSeconds + b.evenSeconds, evenGood: a.evenGood + b.evenGood,
	}
	switch {
	case a.shares == nil || b.shares == nil:
		j.shares = b.shares
	default:
		j.shares = slices.Clone(b.shares)
		for k := range j.shares {
			j.shares[k] = float32((a.rounds*float64(a.shares[k]) + b.rounds*float64(b.shares[k])) / j.rounds)
		}
	}
	return j
}

// series are points of equally many rounds. Where there are too many, two become one.
type series struct {
	points []point
	open   point // its newest, while it has too few rounds
	width  float64
}

func (s *series) add(p point) {
	s.width = max(s.width, 1)
	if s.open.rounds == 0 {
		s.open = p
	} else {
		s.open = join(s.open, p)
	}
	if s.open.rounds < s.width {
		return
	}
	s.points, s.open = append(s.points, s.open), point{}
	if len(s.points) < mostWhole {
		return
	}
	for k := range mostWhole / 2 {
		s.points[k] = join(s.points[2*k], s.points[2*k+1])
	}
	clear(s.points[mostWhole/2:])
	s.points, s.width = s.points[:mostWhole/2], 2*s.width
}

// forget forgets the shares, which were those of other nodes.
func (s *series) forget() {
	s.open.shares = nil
	for i := range s.points {
		s.points[i].shares = nil
	}
}

// lines says which shares are told over time: those of each node, or the mean ones of each device.
type lines struct {
	names  []string
	device []string
	of_    []int     // by node: its line
	count  []float64 // nodes of each line
}

func newLines(c *cluster.Cluster) lines {
	l := lines{of_: make([]int, len(c.Nodes))}
	index := map[string]int{}
	for i := range c.Nodes {
		name := c.Nodes[i].Device
		if len(c.Nodes) <= mostLines {
			name = c.Nodes[i].Name
		}
		k, known := index[name]
		switch {
		case known:
		case len(l.names) == mostLines: // the last takes in all that is left
			k = mostLines - 1
			l.names[k], l.device[k] = "other devices", "other devices"
		default:
			k = len(l.names)
			index[name] = k
			l.names, l.device, l.count = append(l.names, name), append(l.device, c.Nodes[i].Device), append(l.count, 0)
		}
		l.of_[i] = k
		l.count[k]++
	}
	return l
}

// of are the lines' mean shares.
func (l *lines) of(shares []int) []float32 {
	sums := make([]float64, len(l.names))
	for i, s := range shares {
		sums[l.of_[i]] += float64(s)
	}
	out := make([]float32, len(sums))
	for k := range sums {
		out[k] = float32(math.Round(100*sums[k]/l.count[k]) / 100)
	}
	return out
}

func round6(x float64) float64 { return math.Round(x*1e6) / 1e6 }

// round4 is a number to four digits, which is all that a picture shows.
func round4(x float64) float64 {
	if x == 0 || math.IsInf(x, 0) || math.IsNaN(x) {
		return 0
	}
	unit := math.Pow(10, math.Floor(math.Log10(math.Abs(x)))-3)
	return round6(math.Round(x/unit) * unit)
}

// even are equal shares of the global batch, as far as the nodes' micro-batches allow.
func even(c *cluster.Cluster) []int {
	n := len(c.Nodes)
	even := make([]int, n)
	for i := range even {
		share := c.GlobalBatch / n
		if i < c.GlobalBatch%n {
			share++
		}
		even[i] = c.Nodes[i].MostShare(max(share, c.Nodes[i].LeastShare()))
	}
	return even
}

// predict says how many samples a round of equal shares would have had, and how long it would have taken; 0: not known.
// What a node took in this round is scaled to its equal share by the form of its line; of a node that was not measured
// now the parameters speak, and one that never was is left out. What the round took beyond its slowest node
// (communication, the optimizer) would have been the same.
func (h *History) predict(perf []cluster.Performance, report *cluster.Report) (samples, seconds float64) {
	slowest := 0.0
	for i := range report.Nodes {
		n, r := &h.cluster.Nodes[i], &report.Nodes[i]
		p := perf[i]
		switch {
		case r.Measured():
			slowest = max(slowest, r.Seconds)
			p = n.Slowed(p, n.Slowness(p, r))
		case h.paces[i].measured == 0 && n.Profile == nil:
			continue
		}
		if h.even[i] > 0 {
			samples += float64(h.even[i])
			seconds = max(seconds, n.Finish(p, h.even[i]))
		}
	}
	if slowest == 0 {
		return 0, 0
	}
	return samples, seconds + max(report.Wait.Seconds()-slowest, 0)
}
