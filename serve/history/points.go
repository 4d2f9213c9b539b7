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

// marks are what is told of the shares of many nodes.
var marks = []string{"least", "lower quartile", "median", "upper quartile", "most"}

// lines says which shares are told over time: those of each node, or beyond mostLines nodes the marks of each device's.
type lines struct {
	names  []string
	device []string
	nodes  [][]int // of each device; none where each node has a line
}

func newLines(c *cluster.Cluster) lines {
	var l lines
	index := map[string]int{}
	for i := range c.Nodes {
		name := c.Nodes[i].Device
		if len(c.Nodes) <= mostLines {
			l.names, l.device = append(l.names, c.Nodes[i].Name), append(l.device, name)
			continue
		}
		k, known := index[name]
		if !known {
			if len(l.nodes) == mostLines/len(marks) { // the last takes in all that is left
				k, name = len(l.nodes)-1, "other devices"
				l.names, l.device = l.names[:k*len(marks)], l.device[:k*len(marks)]
			} else {
				k = len(l.nodes)
				index[name] = k
				l.nodes = append(l.nodes, nil)
			}
			for _, mark := range marks {
				l.names, l.device = append(l.names, name+", "+mark), append(l.device, name)
			}
		}
		l.nodes[k] = append(l.nodes[k], i)
	}
	return l
}

// of are the lines' shares.
func (l *lines) of(shares []int) []float32 {
	out := make([]float32, 0, len(l.names))
	if l.nodes == nil {
		for _, s := range shares {
			out = append(out, float32(s))
		}
	}
	for _, nodes := range l.nodes {
		sorted := make([]int, len(nodes))
		for k, i := range nodes {
			sorted[k] = shares[i]
		}
		slices.Sort(sorted)
		for k := range marks {
			out = append(out, float32(sorted[k*(len(sorted)-1)/(len(marks)-1)]))
		}
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
// A node's time in this round is scaled to its equal share by its line. A node that was not measured in this round counts
// with its parameters, and one that never was is left out. What the round took beyond its slowest node
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
