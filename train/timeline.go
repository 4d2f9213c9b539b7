package train

import "time"

// Activity is what a node does with a layer.
type Activity string

// Activities. Save is the time from handing a layer over to the checkpoint until it was written; Wait is an update's
// wait for the save of the step before.
const (
	Forward  Activity = "forward" // of all layers
	Backward Activity = "backward"
	Exchange Activity = "exchange"
	Wait     Activity = "wait"
	Update   Activity = "update"
	Save     Activity = "save"
	Commit   Activity = "commit" // of all layers, from the last one written until durable
)

// Span is one activity of one node.
type Span struct {
	Step     uint64        `json:"step"`
	Node     int           `json:"node"`
	Layer    string        `json:"layer,omitempty"`
	Activity Activity      `json:"activity"`
	Begin    time.Duration `json:"begin"` // since the trainer was made
	End      time.Duration `json:"end"`
}

// record notes what is being done, until the function that it returns is called.
func (t *Trainer) record(node, layer int, a Activity) (end func()) {
	return t.recordOf(t.step+1, node, layer, a)
}

func (t *Trainer) recordOf(step uint64, node, layer int, a Activity) (end func()) {
	if !t.config.Timeline {
		return func() {}
	}
	s := Span{Step: step, Node: node, Activity: a, Begin: time.Since(t.begun)}
	if layer >= 0 {
		s.Layer = t.net.layers[layer].name
	}
	return func() {
		s.End = time.Since(t.begun)
		t.mu.Lock()
		defer t.mu.Unlock()
		t.spans = append(t.spans, s)
	}
}

// Timeline returns the spans that ended since it was last called; none without Config.Timeline.
func (t *Trainer) Timeline() []Span {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.spans
	t.spans = nil
	return s
}
