package sim

// CopyFrom makes s the same simulation as o at the same moment, for looking ahead: what
// the copy then does leaves o as it is. The memory of s is used again where it fits.
func (s *Simulator) CopyFrom(o *Simulator) {
	*s = Simulator{
		cluster: o.cluster, conditions: o.conditions,
		nodes: append(s.nodes[:0], o.nodes...), jobs: append(s.jobs[:0], o.jobs...), present: append(s.present[:0], o.present...),
		queue: queue{
			events: append(s.queue.events[:0], o.queue.events...), at: append(s.queue.at[:0], o.queue.at...), pushed: o.queue.pushed,
		},
		orders: append(s.orders[:0], o.orders...), taking: append(s.taking[:0], o.taking...), seed: o.seed,
		now: o.now, round: o.round, seen: o.seen, straggler: o.straggler, replay: o.replay, truth: s.truth, recorder: s.recorder,
	}
	s.truth.Slowdown = append(s.truth.Slowdown[:0], o.truth.Slowdown...)
	s.truth.Noise = append(s.truth.Noise[:0], o.truth.Noise...)
	s.truth.Factor = append(s.truth.Factor[:0], o.truth.Factor...)
	s.truth.Left = append(s.truth.Left[:0], o.truth.Left...)
	s.recorder.CopyFrom(&o.recorder)
	var spells []spell // of all nodes, in one piece
	if len(o.nodes) > 0 {
		spells = make([]spell, 0, len(o.nodes)*len(o.nodes[0].episodes))
	}
	for i := range s.nodes {
		n, begin := &s.nodes[i], len(spells)
		spells = append(spells, n.episodes...)
		n.episodes = spells[begin:len(spells):len(spells)]
		if n.stress != nil {
			u := *n.stress
			n.stress = &u
		}
	}
}
