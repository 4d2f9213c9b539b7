package cluster

import "evenkeel/internal/badinput"

// Stress holds stress conditions, which show how policies do under unusual disturbances. A
// zero part is switched off. Their numbers are chosen, not fitted. They draw from their own
// generators, so switching them on changes no other condition.
type Stress struct {
	Racks   Racks   `yaml:"racks,omitempty" json:"racks"`     // neighbours that slow down together
	Diurnal Diurnal `yaml:"diurnal,omitempty" json:"diurnal"` // slow swings, as of a day
	Creep   Creep   `yaml:"creep,omitempty" json:"creep"`     // nodes that wear out
	Modes   Modes   `yaml:"modes,omitempty" json:"modes"`     // nodes with two speeds
	Wrong   Wrong   `yaml:"wrong,omitempty" json:"wrong"`     // nodes with a wrong profile
	Clocks  Clocks  `yaml:"clocks,omitempty" json:"clocks"`   // nodes whose clock is off
}

// Racks are groups of consecutive nodes that share spells of slowness: rates are per
// rack, and so is the slowdown of a spell.
type Racks struct {
	Size    int `yaml:"size,omitempty" json:"size"` // nodes, 1..100000, the last rack may have fewer; zero with all else: no racks
	Episode `yaml:",inline"`
}

// Diurnal is a sine of the log slowdown, at every node with a phase of its own.
type Diurnal struct {
	Amplitude float64 `yaml:"amplitude,omitempty" json:"amplitude"` // of the log slowdown, 0..3
	Rounds    float64 `yaml:"rounds,omitempty" json:"rounds"`       // period, 1..1e9 where Amplitude is above 0
}

// Creep is a slowdown that grows linearly from the first round on.
type Creep struct {
	Share  float64 `yaml:"share,omitempty" json:"share"`   // chance of a node to be one, 0..1
	Rounds float64 `yaml:"rounds,omitempty" json:"rounds"` // until its time has doubled, 1..1e9
	Most   float64 `yaml:"most,omitempty" json:"most"`     // largest slowdown, 1..100
}

// Modes are two speeds between which a node flips at random; it begins in either.
type Modes struct {
	Share  float64 `yaml:"share,omitempty" json:"share"`   // chance of a node to be one, 0..1
	Excess float64 `yaml:"excess,omitempty" json:"excess"` // slowdown - 1 of the slow one, 0..8
	Rounds float64 `yaml:"rounds,omitempty" json:"rounds"` // mean stay in each, 1..1e9
}

// Wrong are nodes with a wrong profile: from the start half of them are Factor times
// slower than it, half of them Factor times faster.
type Wrong struct {
	Share  float64 `yaml:"share,omitempty" json:"share"`   // chance of a node to be one, 0..1
	Factor float64 `yaml:"factor,omitempty" json:"factor"` // 1..100
}

// Clocks are normal offsets of the nodes' clocks, constant over a run. A node stamps its
// gradient by its own clock, so its reported seconds and age are off by the offset, but at
// least a hundredth of the true ones. The offsets change neither the course of a round nor
// the time so far of a late node.
type Clocks struct {
	SD float64 `yaml:"sd,omitempty" json:"sd"` // seconds, 0..1000
}

// Bounds of factors and clocks.
const (
	maxFactor = 100  // as for a node's slowdown in a cluster file
	maxClock  = 1000 // seconds
)

func (u *Stress) check(f *badinput.Faults) {
	within := f.Within
	if u.Racks != (Racks{}) {
		within("racks.size", float64(u.Racks.Size), 1, MaxNodes)
		u.Racks.check("racks", f)
	}
	if u.Diurnal != (Diurnal{}) {
		within("diurnal.amplitude", u.Diurnal.Amplitude, 0, maxSD)
		within("diurnal.rounds", u.Diurnal.Rounds, 1, maxRounds)
	}
	if u.Creep != (Creep{}) {
		within("creep.share", u.Creep.Share, 0, 1)
		within("creep.rounds", u.Creep.Rounds, 1, maxRounds)
		within("creep.most", u.Creep.Most, 1, maxFactor)
	}
	if u.Modes != (Modes{}) {
		within("modes.share", u.Modes.Share, 0, 1)
		within("modes.excess", u.Modes.Excess, 0, maxExcess)
		within("modes.rounds", u.Modes.Rounds, 1, maxRounds)
	}
	if u.Wrong != (Wrong{}) {
		within("wrong.share", u.Wrong.Share, 0, 1)
		within("wrong.factor", u.Wrong.Factor, 1, maxFactor)
	}
	within("clocks.sd", u.Clocks.SD, 0, maxClock)
}
