package forward

// state is a processor's weights between steps, with what momentum needs of the steps before.
type state struct {
	config *Config
	w      *Weights
	past   []past // the newest last
}

type past struct {
	step       uint32
	increments []int32
}

// try moves the weights to + or - epsilon along a direction: the first seed.
func (s *state) try(step uint32, direction int, sign int64) {
	s.w.add(s.config.Kind, s.config.Key, []term{s.trial(step, direction, sign)})
}

func (s *state) trial(step uint32, direction int, sign int64) term {
	eps := toUnits(s.config.Epsilon)
	if sign < 0 {
		return term{step: step, direction: uint32(direction), minus: eps}
	}
	return term{step: step, direction: uint32(direction), plus: eps}
}

// apply undoes the trial, if there was one (the second seed), and moves along every direction by its increment (the
// third), in one sweep over the weights.
func (s *state) apply(step uint32, increments []int32, tried *term) {
	terms := s.terms(step, increments)
	if tried != nil {
		terms = append(terms, term{step: tried.step, direction: tried.direction, plus: tried.minus, minus: tried.plus})
	}
	s.w.add(s.config.Kind, s.config.Key, terms)
	s.remember(step, increments)
}

// remember keeps what momentum needs of a step.
func (s *state) remember(step uint32, increments []int32) {
	if n := s.config.memory(); n > 0 {
		s.past = append(s.past, past{step, increments})
		s.past = s.past[max(0, len(s.past)-n):]
	}
}

// terms are the moves of a step: its own increments, and what momentum repeats of earlier ones.
func (s *state) terms(step uint32, increments []int32) []term {
	var terms []term
	for d, k := range increments {
		if k != 0 {
			terms = append(terms, term{step: step, direction: uint32(d), plus: int64(k)})
		}
	}
	share := 1.0
	for i := len(s.past) - 1; i >= 0; i-- {
		share *= s.config.Momentum
		for d, k := range s.past[i].increments {
			if n := nearest(int64(k)*toUnits(share), unitBits); n != 0 {
				terms = append(terms, term{step: s.past[i].step, direction: uint32(d), plus: n})
			}
		}
	}
	return terms
}
