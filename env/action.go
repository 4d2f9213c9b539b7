package env

// Action is one update of a node's performance parameters: how far to trust the
// newest measurement, and how large a safety margin to keep for the node's own noise.
//
// A Filter is given by the drift that the node is assumed to have. Its gain follows from
// the uncertainty of the belief, as in a Kalman filter, so that one action averages evenly
// after a jump, settles while the node is steady, and follows a drift.
type Action struct {
	Trust  Trust
	Drift  float64 // variance per round, in units of one measurement's; for Filter
	Margin float64 // safety margin for noise, relative to the fleet's spread

	guess int // index into guesses, for overdue work
}

// Trust is the kind of an update.
type Trust uint8

const (
	Hold   Trust = iota // keep the belief: the measurement was a spike
	Filter              // move toward the measurement by the filter's gain
	Jump                // take the measurement: the node has changed
	Return              // go back to the node's remembered long-run level: a spell is over
)

func (t Trust) String() string { return [...]string{"hold", "filter", "jump", "return"}[t] }

var (
	updates = []Action{{Trust: Hold}, {Trust: Filter, Drift: 0.0003}, {Trust: Filter, Drift: 0.01}, {Trust: Filter, Drift: 0.1}, {Trust: Filter, Drift: 1}, {Trust: Jump}, {Trust: Return}}
	margins = [...]float64{0.15, 0.4, 0.75, 1.1}
)

// Actions are all the actions, by index: every update with every margin.
var Actions = func() []Action {
	var all []Action
	for k, a := range updates {
		a.guess = k
		for _, m := range margins {
			a.Margin = m
			all = append(all, a)
		}
	}
	return all
}()

// Indices into Actions of the model's updates with the first margin. The index of a margin is added to them.
const (
	modelRoom   = 2 // the margin's index if the round waits for all nodes
	modelHold   = 0 * len(margins)
	modelSlow   = 1 * len(margins)
	modelFilter = 2 * len(margins)
	modelQuick  = 3 * len(margins)
	modelKeen   = 4 * len(margins)
	modelJump   = 5 * len(margins)
	modelReturn = 6 * len(margins)
	modelLate   = 0 // guesses[0]: nearly done, and no slower than believed
)
