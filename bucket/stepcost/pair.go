package stepcost

import "evenkeel/bucket/internal/input"

// PairModel predicts a step of samples whose sources and targets are padded separately, on one rank of speed 1.
//
// Seconds are a least-squares fit of a + B (b + c S + d T + e S^2 + f T^2 + g S T) for a batch of B samples with source length S and target
// length T: the layers of an encoder and a decoder, self-attention in each, and cross-attention. As in Model, errors are relative, and there
// are no negative coefficients and no terms that noise alone explains. So seconds rise with S, T and B.
//
// Memory is as in Model, with both lengths: longer means longer in either length, as long means as long in both.
type PairModel struct {
	trials
	time *fit
}

// NewPair prepares a table of trials with two lengths. Limit is the memory in bytes; 0 is the largest peak that ran.
func NewPair(t Table, limit int64) (*PairModel, error) {
	if len(t) > 0 && !t.Pairs() {
		return nil, input.Errorf("the table is of samples with one length: profile with --pair apart")
	}
	m := twoLengths()
	known, err := observe(t, limit, m)
	if err != nil {
		return nil, err
	}
	c := &PairModel{trials: known}
	if c.time = leastSquares(c.ran, m, seconds); c.time == nil {
		return nil, input.Errorf("the table has %d trials that ran: a fit of both lengths needs at least %d that differ in source, target and batch", len(c.ran), m.least)
	}
	return c, nil
}

// Seconds is the predicted duration of a step with a batch of so many samples padded to these lengths.
func (c *PairModel) Seconds(source, target, batch int) float64 {
	return c.time.at(source, target, batch)
}

// Cap is the largest batch of these lengths that fits into memory; 0 where none does or every trial is shorter.
func (c *PairModel) Cap(source, target int) int { return c.fitting(source, target) }
