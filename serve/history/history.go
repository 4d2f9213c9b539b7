// Package history remembers what a dashboard shows of a job: its newest rounds, its whole life in few points, why shares
// changed, and what happened, in words. All of it follows from what the job took in and decided; nothing rests on it. Its size is bounded, however long
// the job runs.
package history

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"evenkeel/agent"
	"evenkeel/cluster"
	"evenkeel/internal/state"
)

const (
	mostRecent = 300 // rounds that are known one by one
	mostLanes  = 12  // the same, by node
	mostLines  = 64  // shares over time: of each node, or how those of each device lie
	mostLog    = 200
	mostNamed  = 3 // nodes that a line of the log names
)

// History is a job's. It is not safe for concurrent use. The zero value is ready.
type History struct {
	seq     int // counts what happened
	started int // seq of the newest start
	last    time.Duration

	cluster *cluster.Cluster `state:"-"`
	lines   lines
	recent  []point
	whole   series
	lanes   []Lane
	log     []Line
	seqs    struct{ recent, lanes, log []int } // beside them
	tempo   tempo

	rounds   int
	gained   struct{ Seconds, Samples, EvenSeconds, EvenSamples float64 } // of all rounds for which equal shares are predicted
	shares   []int
	newest   []cluster.NodeReport // of the newest round; none before the first
	out      []agent.Why          // TakesPart: it has a share
	trial    []bool
	changes  []change
	paces    []belief
	works    []work
	even     []int
	problem  string
	link     float64 // seconds that are normal for a message; 0: not known
	exchange float64 // share of a round that the exchange of gradients takes
	absurd   int     // round of the newest line about impossible reports; 0: none
	strange  int     // number of impossible values in that line
}

// Keep encodes the history for a snapshot.
func (h *History) Keep() ([]byte, error) { return state.Encode(h) }

// Recall restores what Keep encoded, for a process group on c (nil: none has started). After an error the history is empty.
func (h *History) Recall(kept []byte, c *cluster.Cluster) error {
	*h = History{cluster: c}
	err := state.Decode(kept, h)
	if err != nil {
		*h = History{}
	}
	return err
}

// Start begins a process group of a job.
func (h *History) Start(at time.Duration, number int, c *cluster.Cluster) {
	n := len(c.Nodes)
	text := fmt.Sprintf("start %d of the process group: %s, global batch %d", number, count(n, "rank"), c.GlobalBatch)
	if came := arrivals(h.cluster, c); came > 0 {
		text += fmt.Sprintf("; %d of them are new", came)
	}
	h.cluster, h.even, h.lines = c, even(c), newLines(c)
	h.shares, h.newest, h.out, h.trial = make([]int, n), nil, make([]agent.Why, n), make([]bool, n)
	h.changes, h.paces, h.works = make([]change, n), make([]belief, n), make([]work, n)
	h.problem, h.absurd, h.strange, h.link, h.exchange = "", 0, 0, 0, 0
	h.lanes, h.seqs.lanes = nil, nil
	for i := range h.recent { // of other nodes
		h.recent[i].shares = nil
	}
	h.whole.forget()
	h.tempo = tempo{}
	h.started = h.Note(at, "start", text)
}

// Took takes in a report, and by what parameters the round was planned. scale is the gradient noise scale, 0 if unknown.
func (h *History) Took(at time.Duration, report *cluster.Report, perf []cluster.Performance, scale float64) {
	h.seq++
	h.rounds++
	h.last = at
	h.newest = append(h.newest[:0], report.Nodes...)
	p := point{number: h.rounds, at: at.Seconds(), rounds: 1, seconds: report.Wait.Seconds(), samples: float64(report.Accepted)}
	worth := cluster.Efficiency(scale, float64(h.cluster.GlobalBatch), report.Counted)
	p.good = p.samples * worth
	lane := Lane{Number: h.rounds, Wait: round6(p.seconds), Seconds: make([]float32, len(report.Nodes))}
	status := make([]byte, len(report.Nodes))
	for i := range report.Nodes {
		r := &report.Nodes[i]
		if r.Measured() {
			h.paces[i].measured++
		}
		idle := r.Idle
		if r.Status == cluster.Absent {
			idle = p.seconds
		}
		p.idle += min(idle, p.seconds) / float64(len(report.Nodes))
		lane.Seconds[i], status[i] = float32(math.Round(max(r.Seconds, r.Busy)*1e5)/1e5), '0'+byte(r.Status)
		if r.OOM {
			text := h.cluster.Nodes[i].Name + " ran out of memory"
			if r.TooLarge > 0 {
				text += fmt.Sprintf(" at a micro-batch of %d", r.TooLarge)
			}
			h.Note(at, "memory", text)
		}
	}
	if samples, seconds := h.predict(perf, report); seconds > 0 {
		p.evenSeconds, p.evenGood = seconds, samples*cluster.Efficiency(scale, float64(h.cluster.GlobalBatch), samples)
		if report.Round > 0 { // the first of a process group warms up
			h.gained.Seconds += p.seconds
			h.gained.Samples += p.samples
			h.gained.EvenSeconds += seconds
			h.gained.EvenSamples += samples
		}
	}
	h.blame(perf, report)
	lane.Status, p.shares = string(status), h.lines.of(h.shares)
	h.recent = keep(h.recent, p, mostRecent)
	h.seqs.recent = keep(h.seqs.recent, h.seq, mostRecent)
	h.lanes = keep(h.lanes, lane, mostLanes)
	h.seqs.lanes = keep(h.seqs.lanes, h.seq, mostLanes)
	h.whole.add(p)
}

// Decided takes in a plan, and the report that it rests on, nil at a start.
func (h *History) Decided(at time.Duration, plan *cluster.Plan, report *cluster.Report, control *agent.Control, perf []cluster.Performance) {
	h.seq++
	left, back := map[agent.Why][]string{}, []string{}
	for i, to := range plan.Sizes {
		before, name := h.out[i], h.cluster.Nodes[i].Name
		h.out[i], h.trial[i] = h.standing(i, to, control)
		switch why := h.out[i]; {
		case why == before:
		case why == agent.TakesPart:
			back = append(back, name)
		default:
			left[why] = append(left[why], name)
		}
		if notable(h.changes[i].to, to) || h.out[i] != before || report == nil {
			h.changes[i] = h.newChange(i, plan.Number, to, at, report, control, &perf[i])
		}
	}
	for _, why := range slices.Sorted(maps.Keys(left)) { // one line for all: there may be a thousand
		h.Note(at, "out", "left out, as "+reasons[why]+": "+list(left[why]))
	}
	if len(back) > 0 {
		h.Note(at, "back", "back, and taking part again: "+list(back))
	}
	copy(h.shares, plan.Sizes)
	h.follow(at, perf)
	h.passedOver(at, control)
}

// standing says why a node has no share, TakesPart if it has one, and whether it has it only for a trial.
func (h *History) standing(i, share int, control *agent.Control) (agent.Why, bool) {
	if share == 0 {
		return control.LeftOut(i), false
	}
	if h.out[i] == agent.TakesPart {
		return agent.TakesPart, false
	}
	var e agent.Explanation
	if control.Explain(&e, i); e.Part != nil && e.Part.Trial {
		return h.out[i], true
	}
	return agent.TakesPart, false
}

// Note notes what happened at the time at, in words, and returns its number.
func (h *History) Note(at time.Duration, kind, text string) int {
	h.seq++
	h.log = keep(h.log, Line{At: round6(at.Seconds()), Kind: kind, Text: text}, mostLog)
	h.seqs.log = keep(h.seqs.log, h.seq, mostLog)
	return h.seq
}

// Problem notes why there are no new sizes, "" if there are.
func (h *History) Problem(at time.Duration, text string) {
	if text == h.problem {
		return
	}
	if h.problem = text; text == "" {
		h.Note(at, "back", "sizes change again")
		return
	}
	h.Note(at, "problem", "no new sizes: "+text)
}

// passedOver notes impossible reports in the log, but not each of them.
func (h *History) passedOver(at time.Duration, control *agent.Control) {
	a := control.Absurd()
	n := Strange(control)
	if n == h.strange || h.absurd > 0 && h.rounds < h.absurd+mostRecent/4 {
		return
	}
	h.absurd, h.strange = max(h.rounds, 1), n
	h.Note(at, "problem", "reports held impossible values, which were ignored: "+a.String())
}

// Strange counts the impossible values in a job's reports.
func Strange(control *agent.Control) int {
	a := control.Absurd()
	return a.Reports + a.Waits + a.Times + a.Sizes + a.Values + a.Frozen
}

// belief is how fast a node is taken to be: the seconds for an even share.
type belief struct {
	measured  int     // rounds
	reference float64 // that was told of last; 0: none yet
	strange   int     // decisions in a row that differ from it much
}

// tempo collects the nodes that the next line about paces names: one line for all that changed within a minute.
type tempo struct {
	changed []tempoOf
	told    time.Duration // when the newest line was written; 0: none was
}

type tempoOf struct {
	name  string
	ratio float64 // of its new seconds to those before
}

// text names those that changed the most.
func (t *tempo) text() string {
	slices.SortStableFunc(t.changed, func(a, b tempoOf) int { return cmp.Compare(math.Abs(math.Log(b.ratio)), math.Abs(math.Log(a.ratio))) })
	slower, names := 0, []string{}
	for _, c := range t.changed {
		if names = append(names, c.name+" "+pace(c.ratio)); c.ratio > 1 {
			slower++
		}
	}
	text := list(names)
	if len(names) > mostNamed+1 {
		text += fmt.Sprintf("; %d slower, %d faster", slower, len(names)-slower)
	}
	return "changed pace: " + text
}

const (
	paceKnown  = 5    // measurements
	paceChange = 1.25 // ratio that is told of
	paceHeld   = 3    // decisions in a row
	paceEvery  = time.Minute
)

// follow notes nodes that became faster or slower for good.
func (h *History) follow(at time.Duration, perf []cluster.Performance) {
	for i := range h.paces {
		p := &h.paces[i]
		if p.measured < paceKnown {
			continue
		}
		now := h.cluster.Nodes[i].Finish(perf[i], max(h.even[i], 1))
		switch ratio := now / p.reference; {
		case p.reference == 0:
			p.reference = now
		case ratio < paceChange && ratio > 1/paceChange:
			p.strange = 0
		default:
			if p.strange++; p.strange >= paceHeld {
				h.tempo.changed = append(h.tempo.changed, tempoOf{h.cluster.Nodes[i].Name, ratio})
				p.reference, p.strange = now, 0
			}
		}
	}
	if len(h.tempo.changed) > 0 && (h.tempo.told == 0 || at >= h.tempo.told+paceEvery) {
		h.Note(at, "pace", h.tempo.text())
		h.tempo = tempo{told: at}
	}
}

// keep appends to what holds at most so many.
func keep[T any](s []T, x T, most int) []T {
	if len(s) == most {
		copy(s, s[1:])
		s[most-1] = x
		return s
	}
	return append(s, x)
}

// Gain is the samples per second of the whole run over those that equal shares would have had by the measured times; 0: not known.
func (h *History) Gain() float64 {
	g := &h.gained
	if g.Seconds == 0 || g.EvenSamples == 0 {
		return 0
	}
	return g.Samples / g.Seconds * g.EvenSeconds / g.EvenSamples
}
