package env

// Action is one update of a node's performance parameters: how far to trust the
// newest measurement, and how much room to leave for the node's own noise.
type Action struct {
	Gain   float64 // the slowdown moves this share of the way to the newest measurement
	Return bool    // instead, it returns to the node's remembered long-run level
	Margin float64 // room, in deviations of the node's noise times the fleet's spread
}

var (
	gains   = []float64{0, 0.05, 0.15, 0.35, 0.7, 1}
	margins = []float64{0, 0.4, 0.7, 1, 1.4}
)

// Actions are all the actions, by index: every gain, and the return, with every margin.
var Actions = func() []Action {
	var a []Action
	for _, g := range gains {
		for _, m := range margins {
			a = append(a, Action{Gain: g, Margin: m})
		}
	}
	for _, m := range margins {
		a = append(a, Action{Return: true, Margin: m})
	}
	return a
}()
