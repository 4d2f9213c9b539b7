package stats

// Moving is a moving average of values, and how far single ones are from it. The zero value has seen none.
type Moving struct {
	Mean   float64
	Spread float64 // variance of a value
}

// Add takes in a value, which counts by rate, 0..1, and all before it by the rest (West's recurrence).
func (m *Moving) Add(value, rate float64) {
	off := value - m.Mean
	m.Mean += rate * off
	m.Spread += rate * ((1-rate)*off*off - m.Spread)
}
