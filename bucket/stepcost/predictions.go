package stepcost

// Predictions are what a Model fits to its table, for programs that evaluate a plan without fitting.
type Predictions struct {
	// Seconds are the weights of 1, B, B L and B L^2 in a step's seconds; absent: interpolate the smoothed trials.
	Seconds []float64 `json:"seconds,omitempty"`
	// Smoothed are the seconds of the trials that ran, in the table's order, rising with batch and length; absent where Seconds are not.
	Smoothed []float64 `json:"smoothed,omitempty"`
	// Room is the memory beside the constant, and the weights of 1, L and L^2 in the bytes of a sample; absent: only what ran fits.
	Room []float64 `json:"room,omitempty"`
	// Memory says for each length of the table what fits into memory by the trials alone.
	Memory []Fits `json:"memory"`
}

// Fits are the batches between which the largest one of a length lies that fits into memory.
type Fits struct {
	Length int `json:"length"`
	Fits   int `json:"fits"`          // largest batch that ran at this length or a longer one, within the limit
	Out    int `json:"out,omitempty"` // smallest batch that ran out of memory at this length or a shorter one; 0: none
}

// Predictions are those of this model.
func (c *Model) Predictions() *Predictions {
	p := &Predictions{}
	if c.time != nil {
		p.Seconds = c.time.w
	} else {
		for _, s := range c.series {
			for _, t := range s {
				p.Smoothed = append(p.Smoothed, t.Seconds)
			}
		}
	}
	if c.peak != nil {
		w := c.peak.w
		p.Room = []float64{c.limit/(1+c.peak.max) - w[0], w[1], w[2], w[3]}
	}
	out := 0
	for _, t := range c.table {
		if n := len(p.Memory); n == 0 || p.Memory[n-1].Length != t.Length {
			p.Memory = append(p.Memory, Fits{Length: t.Length})
		}
		here := &p.Memory[len(p.Memory)-1]
		if t.OutOfMemory && (out == 0 || t.Batch < out) {
			out = t.Batch
		} else if !t.OutOfMemory && (c.limit == 0 || float64(t.PeakBytes) <= c.limit) {
			here.Fits = max(here.Fits, t.Batch)
		}
		here.Out = out
	}
	for i := len(p.Memory) - 2; i >= 0; i-- {
		p.Memory[i].Fits = max(p.Memory[i].Fits, p.Memory[i+1].Fits)
	}
	return p
}
