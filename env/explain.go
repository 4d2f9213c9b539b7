package env

import "math"

// Belief is a tracker's belief about a node, for explanations.
type Belief struct {
	Slowdown  float64 `json:"slowdown"`  // believed seconds over the profile's
	Variance  float64 `json:"variance"`  // of the slowdown, in units of one measurement's
	Deviation float64 `json:"deviation"` // of one measurement, relative
	Newest    float64 `json:"newest"`    // newest measured slowdown; 0: none yet
	Level     float64 `json:"level"`     // long-run slowdown outside spells of slowness
	Left      float64 `json:"left"`      // expected seconds until the node's older work is done
	Gain      float64 `json:"gain"`      // of the last update; 0: no measurement moved the belief
	Margin    float64 `json:"margin"`    // safety margin for noise, in deviations
	Lag       float64 `json:"lag"`       // how far the slowdown is behind a node that changes gradually, relative
	// Overhead is the share of the node's time that does not grow with its size, and Doubt its standard deviation, for
	// a measured node without a profile; else 0.
	Overhead float64 `json:"overhead,omitempty"`
	Doubt    float64 `json:"doubt,omitempty"`
	Ahead    Ahead   `json:"ahead,omitzero"` // zero: no spell of slowness was seen yet
	Pause    Pause   `json:"pause,omitzero"` // zero: the node never announced one
}

// Ahead is what a tracker foresees for a node, for explanations.
type Ahead struct {
	Chance   float64 `json:"chance"`   // of a spell of slowness to begin in the coming round
	Slowdown float64 `json:"slowdown"` // in a spell, over the level
	Rounds   float64 `json:"rounds"`   // length of a spell
	Came     float64 `json:"came"`     // share of the spells foreseen that came
	Ready    bool    `json:"ready"`    // the parameters leave room for a spell
}

// Pause is what a node announced, for explanations. Times are in seconds.
type Pause struct {
	Announced float64 `json:"announced"` // for the coming round
	Room      float64 `json:"room"`      // that its share leaves for it
	Due       float64 `json:"due"`       // announced for the newest round
	Took      float64 `json:"took"`      // of it, in that round
	Kept      float64 `json:"kept"`      // what its pauses took over what was announced, moving average
}

// Belief returns the belief about a node.
func (t *Tracker) Belief(node int) Belief {
	n := &t.nodes[node]
	b := Belief{Slowdown: n.slowdown, Variance: n.variance, Deviation: n.deviation(), Newest: n.newest[0], Level: n.level, Left: n.left, Gain: n.gain, Margin: n.margin}
	b.Lag = n.lag(b.Deviation)
	if o := &n.outlook; o.rounds > 0 {
		b.Ahead = Ahead{Chance: o.chance, Slowdown: 1 + o.excess, Rounds: o.rounds, Came: n.spell.own.odds(), Ready: n.wanted && t.ahead.ready}
	}
	if s := &t.pauses; s.nodes != nil && s.nodes[node].count+s.nodes[node].announced > 0 {
		p := &s.nodes[node]
		b.Pause = Pause{Announced: p.announced, Room: s.room(node, t.finish), Due: p.due, Took: p.took, Kept: s.keeps(node)}
	}
	if f := &n.form; f.doubt > 0 {
		b.Overhead, b.Doubt = 1-f.slope*f.at, math.Sqrt(f.doubt)*f.at
	}
	return b
}

// ObjectiveNames are the names of the objectives, in order.
var ObjectiveNames = []string{"speed", "waiting", "freshness", "energy"}

// FeatureNames describe the columns of Tracker.Rows, in order.
var FeatureNames = []string{
	"newest time against the belief, in deviations",
	"newest time against the belief",
	"the time before, in deviations",
	"mean of four times, in deviations",
	"moving average of the residuals",
	"residuals of one sign in a row",
	"the node's noise",
	"number of measurements",
	"nearness of the last jump",
	"rounds since the last jump",
	"long-run level, in deviations",
	"long-run level against the belief",
	"long-run level against the newest time",
	"measurements at the long-run level",
	"uncertainty of the belief",
	"gain of the last update",
	"margin of the last update",
	"correlation of residuals in a row",
	"measured in the last round",
	"late in the last round",
	"micro-batch against the mean",
	"doubt of the line's form, in deviations",
	"suddenly slower times in a row",
	"arrival within the round",
	"age of the gradient",
	"older work under way",
	"how overdue it is",
	"fleet: mean residual",
	"fleet: size of the residuals",
	"fleet: rate of jumps",
	"fleet: odds that a jump lasts",
	"fleet: correlation of residuals in a row",
	"fleet: noise",
	"fleet: wait against the prediction",
	"fleet: share of slow nodes",
	"fleet: share of nodes not measured",
	"number of nodes",
	"expected maximum over so many nodes",
	"number of rounds",
	"quorum in force",
	"grace in force",
	"weight of speed",
	"weight of waiting",
	"weight of freshness",
	"weight of energy",
}
