package history

import (
	"fmt"
	"slices"
	"time"

	"evenkeel/cluster"
)

// Cause is what makes a node slow; empty: it is not.
type Cause string

const (
	Input   Cause = "input"   // its data
	Compute Cause = "compute" // its device, now
	Machine Cause = "machine" // its device, for an hour of rounds without a break
	Network Cause = "network" // its link
)

const (
	paceSlow   = 1.25 // times its norm, or slower
	linkSlow   = 3    // the same of a link, whose normal times are mostly latency
	exchanging = 0.2  // least share of a round that the exchange of gradients takes where a link matters
	drain      = time.Hour
	fading     = 16 // rounds that a pace is the mean of, about
	heldRounds = 32 // without a break before a cause is told, and
	heldFor    = 5 * time.Second
)

// work is what a node's rounds are made of.
type work struct {
	compute, input float64    // seconds a sample, at an equal share
	best           float64    // least compute so far; 0: not known
	norm           float64    // compute that is normal for it
	links          [4]float64 // newest seconds for a message
	now            Cause      // by the newest rounds
	rounds         int        // that this has been so, without a break
	seconds        float64    // the same
	cause          Cause      // what is told
}

// link is a node's time for a message, 0 if it is not known. Late messages on a busy machine are none.
func (w *work) link() float64 { return slices.Min(w.links[:]) }

// norm is the lower median, so that of two the faster is normal; 0 if nothing is known.
func norm(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// blame names the causes of slow nodes. Normal is what other nodes of the device take. A node that is the only one of its device is compared with its own
// best, times the slowdown of all nodes since. Where a node's data take longer than its compute, they are the cause without a comparison.
func (h *History) blame(perf []cluster.Performance, report *cluster.Report) {
	slowest := 0.0
	for i := range report.Nodes {
		n, r, w := &h.cluster.Nodes[i], &report.Nodes[i], &h.works[i]
		if r.Link > 0 {
			copy(w.links[1:], w.links[:])
			w.links[0] = r.Link
		}
		if !r.Measured() || report.Round == 0 { // the first of a process group warms up
			continue
		}
		slowest = max(slowest, r.Seconds)
		even := max(h.even[i], 1)
		took := n.Finish(n.Slowed(perf[i], n.Slowness(perf[i], r)), even) / float64(even)
		input := took * r.Input / r.Seconds
		if w.compute == 0 {
			w.compute, w.input = took-input, input
		}
		most := w.compute + w.input // no single round counts for more
		w.compute += min(max(took-input-w.compute, -most), most) / fading
		w.input += min(max(input-w.input, -most), most) / fading
		if h.paces[i].measured >= fading && (w.best == 0 || w.compute < w.best) {
			w.best = w.compute
		}
	}
	if slowest == 0 {
		return
	}
	wait := report.Wait.Seconds()
	h.exchange += (max(1-slowest/wait, 0) - h.exchange) / fading
	var links, slowdowns []float64
	devices := map[string]*struct{ compute, input []float64 }{}
	for i := range h.works {
		w := &h.works[i]
		if w.link() > 0 {
			links = append(links, w.link())
		}
		if w.best > 0 {
			slowdowns = append(slowdowns, w.compute/w.best)
		}
		if w.compute > 0 {
			d := devices[h.cluster.Nodes[i].Device]
			if d == nil {
				d = new(struct{ compute, input []float64 })
				devices[h.cluster.Nodes[i].Device] = d
			}
			d.compute, d.input = append(d.compute, w.compute), append(d.input, w.input)
		}
	}
	h.link = norm(links) // sorts
	slowLink := linkSlow * h.link
	if n := len(links); n > 0 {
		slowLink = max(slowLink, links[n-1]/2) // beside a slow link normal ones vary more
	}
	slowdown := norm(slowdowns)
	norms := map[string][2]float64{}
	for name, d := range devices {
		if len(d.compute) > 1 {
			norms[name] = [2]float64{norm(d.compute), norm(d.input)}
		}
	}
	for i := range h.works {
		w := &h.works[i]
		if !report.Nodes[i].Measured() || h.paces[i].measured < paceKnown {
			continue
		}
		normal, peers := norms[h.cluster.Nodes[i].Device]
		if !peers {
			normal = [2]float64{w.best * slowdown, 0}
		}
		if w.norm = normal[0]; w.norm == 0 {
			w.norm = w.compute
		}
		slow, now := w.compute+w.input > paceSlow*(w.norm+normal[1]), Cause("")
		switch {
		case w.input > w.compute, slow && w.input-normal[1] > w.compute-w.norm:
			now = Input
		case slow:
			now = Compute
		case h.exchange > exchanging && w.link() > slowLink:
			now = Network
		}
		if now != w.now {
			w.now, w.rounds, w.seconds = now, 0, 0
		}
		w.rounds++
		w.seconds += wait
		switch {
		case w.rounds < heldRounds || w.seconds < heldFor.Seconds():
			w.cause = ""
		case now == Compute && w.seconds >= drain.Seconds():
			w.cause = Machine
		default:
			w.cause = now
		}
	}
}

// Cause is what makes a node slow, and a sentence that says so and names the remedy.
func (h *History) Cause(i int) (Cause, string) {
	w, name := &h.works[i], h.cluster.Nodes[i].Name
	switch w.cause {
	case Input:
		return w.cause, fmt.Sprintf("Input: %s waits for its data in %.0f%% of its time. Give its DataLoader more workers, or faster storage.", name, 100*w.input/(w.input+w.compute))
	case Compute:
		return w.cause, fmt.Sprintf("Compute: %s takes %.1f times as long as is normal for a sample.", name, w.compute/w.norm)
	case Machine:
		return w.cause, fmt.Sprintf("Machine: %s has taken %.1f times as long as is normal for a sample, for %.1f hours. Drain it.", name, w.compute/w.norm, w.seconds/3600)
	case Network:
		return w.cause, fmt.Sprintf("Network: %s takes %.1f times as long as is normal for a message, and the exchange of gradients takes %.0f%% of a round. Look at its link.", name, w.link()/h.link, 100*h.exchange)
	}
	return "", ""
}
