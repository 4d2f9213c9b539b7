package train

import (
	"fmt"
	"math/rand/v2"
)

// sampler hands out the numbers of samples, every epoch in a new random order. Its state is the generator's state
// before the current order was drawn, and the count of numbers handed out since the beginning.
type sampler struct {
	random *rand.PCG
	before []byte // the generator's state before order was drawn
	order  []int
	cursor uint64
}

func newSampler(samples int, random *rand.PCG) (*sampler, error) {
	s := &sampler{random: random, order: make([]int, samples)}
	return s, s.draw()
}

// draw draws the next order.
func (s *sampler) draw() (err error) {
	if s.before, err = s.random.MarshalBinary(); err != nil {
		return err
	}
	for i := range s.order {
		s.order[i] = i
	}
	rand.New(s.random).Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
	return nil
}

// next is the number of a sample.
func (s *sampler) next() (int, error) {
	at := s.cursor % uint64(len(s.order))
	if at == 0 && s.cursor > 0 {
		if err := s.draw(); err != nil {
			return 0, err
		}
	}
	s.cursor++
	return s.order[at], nil
}

// restore goes back to a state.
func (s *sampler) restore(before []byte, cursor uint64) error {
	if err := s.random.UnmarshalBinary(before); err != nil {
		return fmt.Errorf("train: state of the random generator: %w", err)
	}
	s.cursor = cursor
	return s.draw()
}

// Order is the numbers of samples in the order in which a Trainer of the same seed takes them.
type Order struct{ sampler *sampler }

// NewOrder begins an order of so many samples.
func NewOrder(samples int, seed uint64) (*Order, error) {
	if samples < 1 {
		return nil, fmt.Errorf("%w: no data", ErrUsage)
	}
	s, err := newSampler(samples, rand.NewPCG(seed, 1))
	return &Order{s}, err
}

// Next is the number of the next sample.
func (o *Order) Next() (int, error) { return o.sampler.next() }
