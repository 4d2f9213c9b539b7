package learn

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"evenkeel/ddqn"
	"evenkeel/ddqn/internal/wire"
)

const (
	maxReplay = 1 << 32 // values of four bytes: bounds the memory of a replay
	maxWidth  = 1 << 16 // features, objectives and actions, as in ddqn.Spec
)

// Kind is the place of a step in its episode, as in DeepMind's dm_env.
type Kind uint8

const (
	// First begins an episode.
	First Kind = iota
	// Mid is any step between.
	Mid
	// Last ends an episode; no action follows it.
	Last
)

func (k Kind) String() string {
	if k > Last {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return [...]string{"First", "Mid", "Last"}[k]
}

// Step is the observation in one environment at one time, the actions, and their rewards until the next
// step. It is therefore added to the replay after the environment has moved on. A Last step is an observation only.
type Step struct {
	// Kind is the place in the episode.
	Kind Kind
	// Terminal says of a Last step that the task ended there, so that nothing follows and its value is zero. False
	// means a time limit: the task would go on, and its value is bootstrapped. False for other kinds.
	Terminal bool
	// Rows holds the features, Group x Features, row-major. Index i is the same entity in all steps of an episode.
	Rows []float32
	// Live says which rows are present, Group long; nil means all. The others are ignored.
	Live []bool
	// Actions holds the action of each row, Group long. Ignored in a Last step.
	Actions []int
	// Rewards holds what the actions earned on the way to the next step, Group x Objectives. Ignored in a Last step.
	Rewards []float32
	// Weights are the preferences by which the actions were chosen, Objectives long. A transition has those of its
	// first step. Ignored in a Last step.
	Weights []float32
}

// ReplayConfig is the size of a replay. Memory is about
// Streams x Capacity x Group x (4 Features + 4 Objectives + 5) bytes.
type ReplayConfig struct {
	// Streams is the number of environments that add steps, at least 1.
	Streams int `json:"streams"`
	// Capacity is the number of steps kept of each stream, at least 2; the oldest go first.
	Capacity int `json:"capacity"`
	// Group is the number of rows in a step, at least 1; 1 for an ordinary DQN.
	Group int `json:"group"`
	// Features is the length of a row, as in Spec.
	Features int `json:"features"`
	// Objectives is the length of the reward vector, as in Spec.
	Objectives int `json:"objectives"`
}

// validate reports everything that is wrong with the configuration at once, or nil.
func (c ReplayConfig) validate() error {
	var errs []error
	check := func(name string, v, least, most int) {
		if v < least || v > most {
			errs = append(errs, fmt.Errorf("replay.%s is %d, must be between %d and %d", name, v, least, most))
		}
	}
	check("streams", c.Streams, 1, 1<<20)
	check("capacity", c.Capacity, 2, 1<<28)
	check("group", c.Group, 1, 1<<16)
	check("features", c.Features, 1, maxWidth)
	check("objectives", c.Objectives, 1, maxWidth)
	if len(errs) == 0 {
		// In floating point, because the product may exceed every integer.
		values := float64(c.Streams) * float64(c.Capacity) * float64(c.Group) * float64(c.Features+c.Objectives+1)
		if values > maxReplay {
			errs = append(errs, fmt.Errorf("replay would hold %.3g values, at most %.3g are supported: lower replay.capacity",
				values, float64(maxReplay)))
		}
	}
	return errors.Join(errs...)
}

// Replay keeps the newest steps of several environments as streams, from which the Learner draws n-step windows.
// Not safe for concurrent use.
type Replay struct {
	cfg     ReplayConfig
	streams []stream
}

// stream is a ring of steps; field by field, step after step.
type stream struct {
	next     int // where the next step goes
	count    int // steps held
	lasts    int // Last steps among them
	open     int // steps held of the episode that has not ended
	kinds    []stepKind
	rows     []float32
	live     []bool
	actions  []int32
	rewards  []float32
	weights  []float32
	capacity int
}

// stepKind is a Kind with the terminal flag in it.
type stepKind uint8

const terminal stepKind = 1 << 7

func (k stepKind) kind() Kind       { return Kind(k &^ terminal) }
func (k stepKind) isTerminal() bool { return k&terminal != 0 }

// NewReplay returns an empty replay. The error names every field that is wrong.
func NewReplay(cfg ReplayConfig) (*Replay, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("ddqn/learn: new replay: %w", err)
	}
	r := &Replay{cfg: cfg, streams: make([]stream, cfg.Streams)}
	for i := range r.streams {
		steps, rows := cfg.Capacity, cfg.Capacity*cfg.Group
		r.streams[i] = stream{
			capacity: cfg.Capacity,
			kinds:    make([]stepKind, steps),
			rows:     make([]float32, rows*cfg.Features),
			live:     make([]bool, rows),
			actions:  make([]int32, rows),
			rewards:  make([]float32, rows*cfg.Objectives),
			weights:  make([]float32, steps*cfg.Objectives),
		}
	}
	return r, nil
}

// size is the number of steps held.
func (r *Replay) size() int {
	n := 0
	for i := range r.streams {
		n += r.streams[i].count
	}
	return n
}

// Add appends a step to a stream, over the oldest one if the stream is full. The step is copied. It is an error,
// and changes nothing, if a length is wrong, a number is not finite, an action is negative, or the kind does not
// follow the stream's newest step: First after Last or at the start, Mid or Last after First or Mid.
func (r *Replay) Add(stream int, s Step) error {
	if stream < 0 || stream >= len(r.streams) {
		return fmt.Errorf("ddqn/learn: add to replay: stream %d, must be between 0 and %d", stream, len(r.streams)-1)
	}
	st := &r.streams[stream]
	begins := st.open == 0
	if err := r.check(s, begins, !begins); err != nil {
		return fmt.Errorf("ddqn/learn: add to replay, stream %d: %w", stream, err)
	}
	r.put(st, s)
	return nil
}

// put appends a step that has been checked.
func (r *Replay) put(st *stream, s Step) {
	c, i := r.cfg, st.next
	if st.count == st.capacity {
		if st.kinds[i].kind() == Last {
			st.lasts--
		}
	} else {
		st.count++
	}
	st.next = (i + 1) % st.capacity
	st.open = min(st.open+1, st.capacity)
	st.kinds[i] = stepKind(s.Kind)
	if s.Kind == Last {
		st.open = 0
		st.lasts++
		if s.Terminal {
			st.kinds[i] |= terminal
		}
	}
	copy(st.rows[i*c.Group*c.Features:], s.Rows)
	live := st.live[i*c.Group:][:c.Group]
	for m := range live {
		live[m] = s.Live == nil || s.Live[m]
	}
	actions := st.actions[i*c.Group:][:c.Group]
	rewards := st.rewards[i*c.Group*c.Objectives:][:c.Group*c.Objectives]
	weights := st.weights[i*c.Objectives:][:c.Objectives]
	if s.Kind == Last {
		clear(actions)
		clear(rewards)
		clear(weights)
		return
	}
	for m, a := range s.Actions {
		actions[m] = int32(a)
	}
	copy(rewards, s.Rewards)
	copy(weights, s.Weights)
}

// check looks at everything about a step; begins and continues say which kinds may come now.
func (r *Replay) check(s Step, begins, continues bool) error {
	c := r.cfg
	var errs []error
	length := func(name string, got, want int) {
		if got != want {
			errs = append(errs, fmt.Errorf("%s has %d values, must have %d", name, got, want))
		}
	}
	finite := func(name string, v []float32) {
		if i := wire.FirstNotFinite(v); i >= 0 {
			errs = append(errs, fmt.Errorf("%s[%d] is %v: %w", name, i, v[i], ddqn.ErrNotFinite))
		}
	}
	length("rows", len(s.Rows), c.Group*c.Features)
	finite("rows", s.Rows)
	if s.Live != nil {
		length("live", len(s.Live), c.Group)
	}
	if s.Kind > Last {
		errs = append(errs, fmt.Errorf("unknown kind %v", s.Kind))
	}
	if s.Terminal && s.Kind != Last {
		errs = append(errs, fmt.Errorf("a %v step is marked terminal; only a Last step can be", s.Kind))
	}
	if s.Kind == First && !begins {
		errs = append(errs, fmt.Errorf("a %v step cannot come in an unfinished episode", s.Kind))
	}
	if s.Kind != First && !continues {
		errs = append(errs, fmt.Errorf("a %v step cannot begin an episode", s.Kind))
	}
	if s.Kind != Last {
		length("actions", len(s.Actions), c.Group)
		for i, a := range s.Actions {
			if a < 0 || a >= maxWidth {
				errs = append(errs, fmt.Errorf("actions[%d] is %d, must be between 0 and %d", i, a, maxWidth-1))
			}
		}
		length("rewards", len(s.Rewards), c.Group*c.Objectives)
		finite("rewards", s.Rewards)
		length("weights", len(s.Weights), c.Objectives)
		finite("weights", s.Weights)
	}
	return errors.Join(errs...)
}

// batch is a number of drawn n-step windows, one group of rows each, laid out for the training graph.
type batch struct {
	x, later []float32 // rows x features, at the start of the window and at its end
	actions  []int     // rows
	returns  []float32 // rows x objectives: sum over k of gamma^k r
	live     []float32 // rows, 1 or 0
	weights  []float32 // groups x objectives, of the step at the start
	discount []float32 // groups: what the value at the end counts; 0 after a terminal
}

func newBatch(groups, group, features, objectives int) *batch {
	rows := groups * group
	return &batch{
		x: make([]float32, rows*features), later: make([]float32, rows*features),
		actions: make([]int, rows), returns: make([]float32, rows*objectives), live: make([]float32, rows),
		weights: make([]float32, groups*objectives), discount: make([]float32, groups),
	}
}

// samples is the number of steps from which an n-step window can be drawn: those that are no Last step and whose
// window of n steps is held to its end, or to the Last step where the episode ends earlier.
func (r *Replay) samples(n int) int {
	total := 0
	for i := range r.streams {
		st := &r.streams[i]
		total += st.count - st.lasts - min(n, st.open)
	}
	return total
}

// sample fills b with windows of at most n steps, drawn uniformly with replacement. It draws any step held and
// rejects it if no window starts there, so samples(n) must be positive.
func (r *Replay) sample(b *batch, n int, gamma float32, rng *rand.Rand) {
	total := r.size()
	for g := range b.discount {
		for {
			i, s := rng.IntN(total), 0
			for ; i >= r.streams[s].count; s++ {
				i -= r.streams[s].count
			}
			if length := r.streams[s].window(i, n); length > 0 {
				r.fill(b, g, &r.streams[s], i, length, gamma)
				break
			}
		}
	}
}

// at is the place in the ring of the i-th oldest step.
func (s *stream) at(i int) int {
	return (s.next - s.count + i + 2*s.capacity) % s.capacity
}

// window returns the number of steps from the i-th oldest step to the end of its n-step window, or 0 if none starts
// there. Steps that were overwritten are before the oldest one, so no window can reach them.
func (s *stream) window(i, n int) int {
	for k := range n + 1 {
		if i+k >= s.count {
			return 0
		}
		if s.kinds[s.at(i+k)].kind() == Last {
			return k
		}
	}
	return n
}

// fill writes the window of the given length from the i-th oldest step on as group g of the batch. A row counts
// only if it is live in every step of the window: otherwise its rewards do not follow from its first action.
func (r *Replay) fill(b *batch, g int, s *stream, i, length int, gamma float32) {
	m, f, o := r.cfg.Group, r.cfg.Features, r.cfg.Objectives
	start, end := s.at(i), s.at(i+length)
	copy(b.x[g*m*f:][:m*f], s.rows[start*m*f:])
	copy(b.later[g*m*f:][:m*f], s.rows[end*m*f:])
	copy(b.weights[g*o:][:o], s.weights[start*o:])
	for j, a := range s.actions[start*m:][:m] {
		b.actions[g*m+j] = int(a)
	}
	live, returns := b.live[g*m:][:m], b.returns[g*m*o:][:m*o]
	for j := range live {
		live[j] = 1
	}
	clear(returns)
	discount := float32(1)
	for k := range length + 1 {
		p := s.at(i + k)
		for j, ok := range s.live[p*m:][:m] {
			if !ok {
				live[j] = 0
			}
		}
		if k == length {
			break
		}
		for j, reward := range s.rewards[p*m*o:][:m*o] {
			returns[j] += float32(discount * reward)
		}
		discount *= gamma
	}
	if s.kinds[end].isTerminal() {
		discount = 0
	}
	b.discount[g] = discount
}
