package cluster

import (
	"encoding/json"
	"os"
	"testing"

	"evenkeel/cluster/profile"
)

// The vectors that clients in other languages are held to (internal/vectors/make_deadline_accumulation.py
// wrote them, from the rule's text) hold here too.
func TestAccumulationVectors(t *testing.T) {
	data, err := os.ReadFile("../internal/vectors/deadline-accumulation.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []vector }
	if err := json.Unmarshal(data, &file); err != nil {
		t.Fatal(err)
	}
	if len(file.Cases) < 70 {
		t.Fatalf("%d cases", len(file.Cases))
	}
	for _, x := range file.Cases {
		a := x.begin(t)
		for k, s := range x.Steps {
			if got := a.Next(s.Elapsed); got != s.Size {
				t.Fatalf("%s: step %d has %d samples, want %d", x.Name, k, got, s.Size)
			}
			if s.Size > 0 {
				a.Done(s.Size, s.Seconds)
			}
		}
		x.end(t, &a)
	}
}

// vector is a round as the file has it.
type vector struct {
	Name string
	Node struct {
		Limit, Least int
		Shapes       []int
		Points       [][2]float64
	}
	Order struct {
		Share                   int
		Deadline, Reserve, Pace float64
		Whole                   bool
	}
	Steps []struct {
		Elapsed, Seconds float64
		Size             int
	}
	Samples    int
	MicroSteps int `json:"micro_steps"`
}

func (x *vector) begin(t *testing.T) Accumulation {
	t.Helper()
	n := Node{Limit: x.Node.Limit, Least: x.Node.Least, Shapes: x.Node.Shapes}
	o := Order{Share: x.Order.Share, Deadline: x.Order.Deadline, Reserve: x.Order.Reserve, Whole: x.Order.Whole, Pace: x.Order.Pace}
	if len(x.Node.Points) > 0 {
		points := make([]profile.Point, len(x.Node.Points))
		for i, p := range x.Node.Points {
			points[i] = profile.Point{MicroBatch: int(p[0]), Seconds: p[1]}
		}
		var err error
		if n.Profile, err = profile.New("d", "w", points, "test"); err != nil {
			t.Fatal(x.Name, err)
		}
		o.Pace *= n.Profile.PerSample() // the file's is relative to the points
	}
	return n.Begin(o)
}

func (x *vector) end(t *testing.T, a *Accumulation) {
	t.Helper()
	if samples, steps := a.Samples(); samples != x.Samples || steps != x.MicroSteps {
		t.Errorf("%s: %d samples in %d, want %d in %d", x.Name, samples, steps, x.Samples, x.MicroSteps)
	}
}
