package history

import (
	"evenkeel/agent"
	"evenkeel/cluster"
)

// View is what is told of a job at once.
type View struct {
	Seq      int     `json:"-"` // number of the newest that it tells of
	Complete bool    `json:"complete" doc:"true: the event has everything that is kept; false: what is new since the event before"`
	Last     float64 `json:"last" doc:"When the newest round was reported, in seconds since the job was created; 0: no round yet"`
	Names    *Names  `json:"names,omitempty" doc:"Names of the nodes; absent until a process group has started"`
	Nodes    Nodes   `json:"nodes"`
	Rounds   Rounds  `json:"rounds"`
	Lanes    []Lane  `json:"lanes" nullable:"false" doc:"The newest rounds by node"`
	Log      []Line  `json:"log" nullable:"false"`
}

// Names are those of a job's nodes, in rank order.
type Names struct {
	Nodes   []string `json:"nodes" nullable:"false"`
	Devices []string `json:"devices" nullable:"false"`
	Lines   []string `json:"lines" nullable:"false" doc:"Names of the lines of shares over time: one for each node or, with more than 64 nodes, five for each device: minimum, lower quartile, median, upper quartile and maximum of its shares"`
	Of      []string `json:"of" nullable:"false" doc:"Devices of the lines"`
}

// Nodes are what is known of a job's nodes, in rank order.
type Nodes struct {
	Share      []int     `json:"share" nullable:"false" doc:"Share of the node in the newest sizes, in samples"`
	MicroBatch []int     `json:"micro_batch" nullable:"false" doc:"Largest micro-batch that the node is given"`
	Seconds    []float64 `json:"seconds" nullable:"false" doc:"Seconds of compute in the newest round; 0: not known"`
	Input      []float64 `json:"input" nullable:"false" doc:"Seconds that the data took beyond the compute"`
	Wait       []float64 `json:"wait" nullable:"false" doc:"Seconds that the node waited for others in the newest round"`
	State      []string  `json:"state" nullable:"false" doc:"State in the newest round (in, late, refused, lost, absent), new, tried, or why the node is left out"`
	Cause      []Cause   `json:"cause" nullable:"false" enum:",input,compute,network,machine" doc:"What makes the node slow; empty: it is not slow"`
	Changed    []float64 `json:"changed" nullable:"false" doc:"When the node's share last changed by more than 5%, in seconds since the job was created"`
	Why        []string  `json:"why,omitempty" doc:"Why the node's share last changed, in words; only with up to 64 nodes"`
}

// Rounds are what rounds came to, one or several at a time.
type Rounds struct {
	Number  []int       `json:"number" nullable:"false" doc:"Number of the round, from 1, counted through all generations"`
	At      []float64   `json:"at" nullable:"false" doc:"When the round was reported, in seconds since the job was created"`
	Seconds []float64   `json:"seconds" nullable:"false" doc:"Duration of the round in seconds"`
	Goodput []float64   `json:"goodput" nullable:"false" doc:"Samples per second, each weighted by its worth to the model"`
	Even    []float64   `json:"even" nullable:"false" doc:"Goodput predicted for equal shares from the measured times; 0: not known"`
	Idle    []float64   `json:"idle" nullable:"false" doc:"Share of the nodes' time spent waiting for others, 0..1"`
	Shares  [][]float32 `json:"shares" nullable:"false" doc:"Shares by line; null: the round had other nodes"`
}

// Lane is a round by node.
type Lane struct {
	Number  int       `json:"number"`
	Wait    float64   `json:"wait" doc:"Seconds that the round took"`
	Seconds []float32 `json:"seconds" nullable:"false" doc:"Seconds of compute and input by node; for a late node so far"`
	Status  string    `json:"status" doc:"A digit for each node: 0 absent, 1 in, 2 late, 3 refused, 4 lost"`
}

// Line is something that happened.
type Line struct {
	At   float64 `json:"at" doc:"Seconds since the job was created"`
	Kind string  `json:"kind" enum:"job,start,change,out,back,pace,memory,problem"`
	Text string  `json:"text"`
}

// View tells what is new since the number after, or all where that is not known.
func (h *History) View(after int) View {
	if after < 0 || after > h.seq {
		after = 0
	}
	v := View{Seq: h.seq, Complete: after == 0, Last: round6(h.last.Seconds()), Nodes: h.nodes(), Lanes: []Lane{}, Log: []Line{}}
	if h.cluster != nil && h.started > after {
		v.Names = h.names()
	}
	v.Rounds = tell(h.recent[newer(h.seqs.recent, after):])
	v.Lanes = append(v.Lanes, h.lanes[newer(h.seqs.lanes, after):]...)
	v.Log = append(v.Log, h.log[newer(h.seqs.log, after):]...)
	return v
}

// newer is the first index whose number is above after.
func newer(seqs []int, after int) int {
	k := len(seqs)
	for k > 0 && seqs[k-1] > after {
		k--
	}
	return k
}

// Whole tells a job's whole life.
func (h *History) Whole() Rounds {
	points := h.whole.points
	if h.whole.open.rounds > 0 {
		points = append(points[:len(points):len(points)], h.whole.open)
	}
	return tell(points)
}

func (h *History) names() *Names {
	n := &Names{Lines: h.lines.names, Of: h.lines.device}
	for i := range h.cluster.Nodes {
		n.Nodes, n.Devices = append(n.Nodes, h.cluster.Nodes[i].Name), append(n.Devices, h.cluster.Nodes[i].Device)
	}
	return n
}

func tell(points []point) Rounds {
	n := len(points)
	r := Rounds{
		Number: make([]int, n), At: make([]float64, n), Seconds: make([]float64, n), Goodput: make([]float64, n), Even: make([]float64, n), Idle: make([]float64, n),
		Shares: make([][]float32, n),
	}
	for k := range points {
		p := &points[k]
		r.Number[k], r.At[k], r.Seconds[k], r.Idle[k], r.Shares[k] = p.number, round6(p.at), round4(p.seconds/p.rounds), round4(p.idle/max(p.seconds, 1e-9)), p.shares
		if r.Goodput[k] = round4(p.good / max(p.seconds, 1e-9)); p.evenSeconds > 0 {
			r.Even[k] = round4(p.evenGood / p.evenSeconds)
		}
	}
	return r
}

func (h *History) nodes() Nodes {
	count := len(h.shares)
	n := Nodes{Share: append([]int{}, h.shares...), MicroBatch: make([]int, count), Seconds: make([]float64, count), Input: make([]float64, count), Wait: make([]float64, count), State: make([]string, count), Cause: make([]Cause, count), Changed: make([]float64, count)}
	for i := range h.shares {
		n.Changed[i] = round6(h.changes[i].at.Seconds())
		n.MicroBatch[i], n.State[i], n.Cause[i] = h.cluster.Nodes[i].Full(), h.state(i), h.works[i].cause
		if h.newest != nil {
			r := &h.newest[i]
			n.Seconds[i], n.Input[i], n.Wait[i] = round6(max(r.Seconds-r.Input, r.Busy)), round6(r.Input), round6(r.Idle)
		}
		if count <= mostLines {
			n.Why = append(n.Why, h.changes[i].text())
		}
	}
	return n
}

func (h *History) state(i int) string {
	switch {
	case h.trial[i]:
		return "tried"
	case h.out[i] != agent.TakesPart:
		return h.out[i].String()
	case h.newest == nil || h.newest[i].Status == cluster.Absent && h.shares[i] > 0:
		return "new"
	}
	return h.newest[i].Status.String()
}

// Node says when and why a node's share last changed, in words.
func (h *History) Node(i int) (since float64, why string) {
	return round6(h.changes[i].at.Seconds()), h.changes[i].text()
}
