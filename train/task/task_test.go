package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"evenkeel/train"
)

func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Everything that defaults can name trains a step.
func TestTasksTrain(t *testing.T) {
	text := writeFile(t, "t.txt", strings.Repeat("some text. ", 80))
	table := writeFile(t, "t.csv", strings.Repeat("1,2,0\n3,4,1\n", 10))
	for _, c := range []struct {
		task  Task
		model string
	}{
		{Task{}, MLP}, {Task{Model: Convnet, Depth: 3}, Convnet}, {Task{Data: Synthetic}, MLP}, {Task{Data: text}, Transformer},
		{Task{Data: table, Optimizer: train.SGD, MicroBatches: []int{3, 1, 2}}, MLP},
	} {
		w, err := c.task.WithDefaults().Build()
		if err != nil {
			t.Errorf("%+v: %v", c.task, err)
			continue
		}
		tr, err := train.New(w.Network, w.Training, w.Config)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tr.Step(context.Background()); err != nil || w.Task.Model != c.model {
			t.Errorf("%+v: model %s, %v", c.task, w.Task.Model, err)
		}
	}
}

func TestBadTasks(t *testing.T) {
	for want, c := range map[string]Task{
		`model "rnn"`:                 {Model: "rnn"},
		"it is for images":            {Model: Convnet, Data: Synthetic},
		"a transformer is for":        {Model: Transformer},
		"size -1":                     {Size: -1},
		"multiple of 4":               {Data: "x.txt", Size: 30},
		"depth 65":                    {Depth: 65},
		"micro-batch of 0":            {MicroBatches: []int{0}},
		"of 70000 samples for node 1": {MicroBatches: []int{1, 70000}},
		`optimizer "lion"`:            {Optimizer: "lion", Rate: 1},
		"learning rate -1":            {Rate: -1},
		"want at most 2^53":           {Seed: 1 << 60},
		"t.csv has 3 samples":         {Data: writeFile(t, "t.csv", "1,0\n2,1\n3,0\n")},
		"has changed since the":       {Data: writeFile(t, "u.csv", "1,0\n2,1\n3,0\n"), DataHash: "0123456789abcdef"},
		"choose a smaller size":       {Size: 1 << 16, Depth: 3},
		"no such file":                {Data: "missing.txt"},
		"one sample needs 65":         {Data: writeFile(t, "u.txt", "short")},
		"line 2, column 1: \"x\"":     {Data: writeFile(t, "v.csv", "1,0\nx,1\n")},
	} {
		if _, err := c.WithDefaults().Build(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func TestFile(t *testing.T) {
	task := Task{MicroBatches: []int{5, 6}, Seed: 3}.WithDefaults()
	path := filepath.Join(t.TempDir(), "task.json")
	if err := task.Save(path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Read(bytes.NewReader(text)); err != nil || !reflect.DeepEqual(again, task) {
		t.Errorf("%+v, %v", again, err)
	}
	var file, definition any
	if err := errors.Join(json.Unmarshal(text, &file), json.Unmarshal(schema, &definition)); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("task.schema.json", definition); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("task.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(file); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	text, err := json.Marshal(Task{}.WithDefaults())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		task, err := Read(bytes.NewReader(text))
		if err != nil {
			if !errors.Is(err, ErrTask) {
				t.Fatal(err)
			}
			return
		}
		if err := task.Validate(); err != nil {
			t.Fatal(err)
		}
	})
}
