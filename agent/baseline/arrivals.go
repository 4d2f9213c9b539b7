package baseline

import (
	"cmp"
	"math"
	"slices"
	"time"

	"evenkeel/cluster"
)

// arrivals derives from the reports when each node's work for a round arrived, even if that was rounds later. Until it
// arrives, only a lower bound of its time is known. A round is complete once all its times are known.
type arrivals struct {
	open   []*arrivalRound // oldest first
	last   *arrivalRound   // last one that next returned; reused
	spare  []*arrivalRound
	known  time.Duration // end of the newest round
	behind []bool        // nodes with times still open
}

// arrivalRound is a round with the arrivals that it would have had if it had waited for all nodes.
type arrivalRound struct {
	start  time.Duration
	nodes  []arrival
	open   int // arrivals that are still only bounded
	sorted []arrival
}

// arrival is the arrival of one node's work.
type arrival struct {
	at   float64 // seconds from the opening
	size int     // samples; 0: took no part
	open bool
}

// arrivalPatience is the number of rounds for which a node's time may stay open. After
// that the time that has passed counts.
const arrivalPatience = 20

// add processes a report.
func (a *arrivals) add(report *cluster.Report) {
	r := a.begin(len(report.Nodes))
	r.start, a.known = report.Start, report.Start+report.Wait
	wait := report.Wait.Seconds()
	for i := range report.Nodes {
		n, late := &report.Nodes[i], a.behind[i]
		switch n.Status {
		case cluster.Absent, cluster.Lost:
			a.drop(i)
			continue
		case cluster.Late:
			// It computes this round's work or still that of an earlier one.
			r.nodes[i] = arrival{at: wait, size: n.Size, open: true}
		default:
			end := wait - n.Idle // of the newest gradient
			if n.BusySize > 0 {
				end = wait - n.Busy
				r.nodes[i] = arrival{at: wait, size: n.BusySize, open: true}
			} else if n.Behind == 0 {
				r.nodes[i] = arrival{at: end, size: n.Size}
				end -= n.Seconds // the older gradient arrived when this one began
			}
			if late {
				a.resolve(i, report.Start+time.Duration(end*1e9), n.Seconds)
			}
		}
		if r.nodes[i].open {
			r.open++
			a.behind[i] = true
		}
	}
	a.open = append(a.open, r)
}

// begin returns a round to fill in.
func (a *arrivals) begin(nodes int) *arrivalRound {
	if a.behind == nil {
		a.behind = make([]bool, nodes)
	}
	if len(a.spare) == 0 {
		return &arrivalRound{nodes: make([]arrival, nodes)}
	}
	r := a.spare[len(a.spare)-1]
	a.spare = a.spare[:len(a.spare)-1]
	clear(r.nodes)
	r.open = 0
	return r
}

// resolve closes the open times of node i, whose work arrived at the time at after took seconds. Each later round that the
// node missed meanwhile would have waited took seconds more.
func (a *arrivals) resolve(i int, at time.Duration, took float64) {
	a.behind[i] = false
	again := 0.0
	for _, r := range a.open {
		if n := &r.nodes[i]; n.open {
			n.at, n.open = (at-r.start).Seconds()+again, false
			r.open--
			again = took
		}
	}
}

// drop removes node i, which is gone, from the rounds that wait for it.
func (a *arrivals) drop(i int) {
	a.behind[i] = false
	for _, r := range a.open {
		if r.nodes[i].open {
			r.nodes[i] = arrival{}
			r.open--
		}
	}
}

// next removes and returns the oldest round with its arrivals sorted by time; nil while
// that round is not complete. The result is valid until the next call.
func (a *arrivals) next() *arrivalRound {
	if a.last != nil {
		a.spare = append(a.spare, a.last)
		a.last = nil
	}
	if len(a.open) == 0 || a.open[0].open > 0 && len(a.open) <= arrivalPatience {
		return nil
	}
	r := a.open[0]
	a.last, a.open = r, slices.Delete(a.open, 0, 1)
	r.sorted = r.sorted[:0]
	for _, n := range r.nodes {
		if n.open {
			n.at = (a.known - r.start).Seconds()
		}
		if n.size > 0 {
			r.sorted = append(r.sorted, n)
		}
	}
	slices.SortFunc(r.sorted, func(x, y arrival) int { return cmp.Compare(x.at, y.at) })
	return r
}

// counted returns the samples that count if the round ends after end seconds with its first arrivals. With late, the other
// samples count as in a later round, minus the work that their nodes cannot begin meanwhile.
func (r *arrivalRound) counted(end float64, first int, late bool) float64 {
	sum := 0.0
	for i := range r.sorted {
		n := &r.sorted[i]
		switch {
		case i < first:
			sum += float64(n.size)
		case late:
			left := n.at - end
			behind := int(min(math.Ceil(left/max(end, 1e-9)), 1e6))
			sum += float64(n.size) * max(cluster.Credit(behind)-left/max(n.at, 1e-9), 0)
		}
	}
	return sum
}
