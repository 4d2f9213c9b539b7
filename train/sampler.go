package train

import (
	"fmt"
	"math/rand/v2"
)

// Order hands out the numbers of samples as a Trainer of the same seed takes them: every epoch in a new random order.
// Its state is the generator's state before the current order was drawn, and the count of numbers handed out since the
// beginning.
type Order struct {
	random *rand.PCG
	before []byte // the generator's state before order was drawn
	order  []int
	cursor uint64
}

// NewOrder begins an order of so many samples.
func NewOrder(samples int, seed uint64) (*Order, error) {
	if samples < 1 {
		return nil, fmt.Errorf("%w: no data", ErrUsage)
	}
	s := &Order{random: rand.NewPCG(seed, 1), order: make([]int, samples)}
	return s, s.draw()
}

// draw draws the next order.
func (o *Order) draw() (err error) {
	if o.before, err = o.random.MarshalBinary(); err != nil {
		return err
	}
	for i := range o.order {
		o.order[i] = i
	}
	rand.New(o.random).Shuffle(len(o.order), func(i, j int) { o.order[i], o.order[j] = o.order[j], o.order[i] })
	return nil
}

// Next is the number of the next sample.
func (o *Order) Next() (int, error) {
	at := o.cursor % uint64(len(o.order))
	if at == 0 && o.cursor > 0 {
		if err := o.draw(); err != nil {
			return 0, err
		}
	}
	o.cursor++
	return o.order[at], nil
}

// restore goes back to a state.
func (o *Order) restore(before []byte, cursor uint64) error {
	if err := o.random.UnmarshalBinary(before); err != nil {
		return fmt.Errorf("train: state of the random generator: %w", err)
	}
	o.cursor = cursor
	return o.draw()
}
