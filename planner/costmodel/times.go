package costmodel

// Times are sums of layers' times on replicas, to divide a micro-batch by. It remembers them and is not safe for concurrent use.
type Times struct {
	m    *Model
	sums map[timesKey][][2]float64 // forward, and forward with backward, of the layers before
}

type timesKey struct{ class, tensor, samples int }

// Times are those of a model.
func (m *Model) Times() *Times { return &Times{m, map[timesKey][][2]float64{}} }

// Stage is the seconds that layers from..to-1 take on one replica, those that are checkpointed as if in even parts of the
// stage; false: not profiled so.
func (t *Times) Stage(class, tensor, samples, from, to int, checkpointed float64) (float64, bool) {
	k := timesKey{class, tensor, samples}
	sums, ok := t.sums[k]
	if !ok {
		sums = t.read(k)
		t.sums[k] = sums
	}
	if sums == nil {
		return 0, false
	}
	return sums[to][1] - sums[from][1] + checkpointed*(sums[to][0]-sums[from][0]), true
}

func (t *Times) read(k timesKey) [][2]float64 {
	sums := make([][2]float64, 1, len(t.m.profile.Layers)+1)
	slow := t.m.slow(k.class)
	for l := range t.m.profile.Layers {
		run, ok := t.m.curve(l, k.class, k.tensor).At(k.samples)
		if !ok {
			return nil
		}
		last := sums[l]
		sums = append(sums, [2]float64{last[0] + slow*run.Forward, last[1] + slow*(run.Forward+run.Backward)})
	}
	return sums
}
