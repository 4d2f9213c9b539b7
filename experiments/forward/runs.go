package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// saved is a run of which the losses on what is held out are known: a line of the file of -runs.
type saved struct {
	Run    string  `json:"run"`
	Before float64 `json:"before"`
	After  float64 `json:"after"`
}

// runs are those of a file, so that what takes long may end early and be called again.
type runs struct {
	path  string // empty: none is kept
	until time.Time
	done  map[string]saved
}

// openRuns reads the file of -runs, if there is one.
func (w *world) openRuns() (*runs, error) {
	r := &runs{path: w.runs, done: map[string]saved{}}
	if w.minutes > 0 {
		r.until = time.Now().Add(time.Duration(w.minutes * float64(time.Minute)))
	}
	f, err := os.Open(w.runs)
	if w.runs == "" || errors.Is(err, os.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	for d := json.NewDecoder(f); ; {
		var one saved
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return r, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", w.runs, err)
		}
		r.done[one.Run] = one
	}
}

// get is a run of the file, or is made and added to it.
func (r *runs) get(name string, run func() (before, after float64, err error)) (saved, error) {
	if one, ok := r.done[name]; ok {
		return one, nil
	}
	one := saved{Run: name}
	if !r.until.IsZero() && time.Now().After(r.until) {
		return one, errors.New("not all is there: call again")
	}
	var err error
	if one.Before, one.After, err = run(); err != nil {
		return one, err
	}
	text, err := json.Marshal(one)
	if err != nil {
		return one, err
	}
	fmt.Fprintln(os.Stderr, string(text))
	if r.path == "" {
		return one, nil
	}
	f, err := os.OpenFile(r.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return one, err
	}
	_, err = f.Write(append(text, '\n'))
	return one, errors.Join(err, f.Close())
}
