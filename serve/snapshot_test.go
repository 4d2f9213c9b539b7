package serve

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"evenkeel/agent/export"
	"evenkeel/internal/broker"
	"evenkeel/serve/journal"
)

// messages are those that a journal has of a job, and their count.
func messages(t *testing.T, j *journal.Journal) (first *message, n int) {
	t.Helper()
	_, err := j.Read(t.Context(), "job", 0, func(text []byte) error {
		m, err := decode(text)
		if n++; n == 1 {
			first = m
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return first, n
}

// Of a job that runs for long the journal keeps a snapshot and what came after it. Another service that is behind goes on from the snapshot.
func TestSnapshots(t *testing.T) {
	n, url := natsAt(t, t.TempDir(), server.RANDOM_PORT)
	t.Cleanup(func() { broker.Stop(n) })
	j := openURL(t, url)
	a, one := newClient(t, Config{Journal: j, every: 5})
	b, two := newClient(t, Config{Journal: openURL(t, url), every: 5})
	sizes := a.start("job", "0123456789", 64, 2).Sizes
	b.settle("job", 1)
	for k := range 40 {
		c := []*client{a, b}[k/13%2]
		sizes = c.play("job", sizes, k, 1, 0.001, 0.002)
		x, y := one, two
		if k/13%2 == 1 {
			x, y = y, x
		}
		if k%9 == 0 {
			if _, err := y.fresh("job"); err != nil {
				t.Fatal(err)
			}
			if got, want := y.known("job").memory(), x.known("job").memory(); got != want {
				t.Fatalf("round %d:\n%s\n%s", k, got, want)
			}
		}
	}
	if first, n := messages(t, j); first.Snapshot == nil || n > 12 {
		t.Errorf("%d messages, the first of version %d", n, first.Version)
	}
	if state := b.settle("job", 41); state.Rounds != 40 || state.Reports["accepted"] != 40 {
		t.Errorf("%+v", state)
	}
}

// A service that ends between a snapshot and the cut, or in the middle of that, does no harm. A snapshot of another version of the program, or of other profiles, ends the
// generation alone; a damaged one is said.
func TestOddSnapshots(t *testing.T) {
	for name, x := range map[string]struct {
		cut    uint64 // messages before this one are gone
		spoil  func(*snapshot)
		status int
		anew   bool // the generation has ended
	}{
		"not cut":        {0, func(*snapshot) {}, 200, false},
		"half cut":       {4, func(*snapshot) {}, 200, false},
		"cut":            {9, func(*snapshot) {}, 200, false},
		"other profiles": {9, func(s *snapshot) { s.Start.Profiles++ }, 200, true},
		"other version":  {9, func(s *snapshot) { s.Start.Parts[1] = s.Start.Parts[0] }, 200, true},
		"damaged":        {9, func(s *snapshot) { s.Start.Parts[2] = s.Start.Parts[2][:20] }, 500, false},
		"without ranks":  {9, func(s *snapshot) { s.Start.Ranks = nil }, 200, true},
		"fewer ranks":    {9, func(s *snapshot) { s.Start.Ranks = s.Start.Ranks[:1] }, 500, false},
	} {
		t.Run(name, func(t *testing.T) {
			config := Config{Journal: openJournal(t, t.TempDir()), every: 1 << 30}
			c, s := newClient(t, config)
			sizes := c.start("job", "0123456789", 64, 2).Sizes
			c.play("job", sizes, 0, 6, 0.001, 0.002)
			j := s.known("job")
			want := j.memory()
			j.mu.Lock()
			kept, err := j.snapshot()
			j.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			x.spoil(kept)
			text, err := json.Marshal(message{Version: snapshotVersion, Snapshot: kept})
			if err != nil {
				t.Fatal(err)
			}
			last, err := config.Journal.Append(t.Context(), "job", kept.After, text)
			if err != nil || last != 9 {
				t.Fatal(last, err)
			}
			if x.cut > 0 {
				if err := config.Journal.Cut(t.Context(), "job", x.cut); err != nil {
					t.Fatal(err)
				}
			}
			s.Close()
			c, s = newClient(t, config)
			c.t = quiet{t}
			var state JobState
			if status := c.do("GET", "/v1/jobs/job", nil, &state); status != x.status {
				t.Fatal(status)
			}
			if x.status != 200 {
				return
			}
			if state.Rounds != 6 {
				t.Errorf("%+v", state)
			}
			if !x.anew {
				if got := s.known("job").memory(); got != want {
					t.Errorf("\n%s\n%s", got, want)
				}
				return
			}
			var got started
			if status := c.do("POST", "/v1/jobs/job/generations", object{"id": "0123456789", "global_batch": 64, "ranks": []object{{"name": "a/0"}}}, &got); status != http.StatusCreated || got.Generation != 2 {
				t.Errorf("%d, generation %d", status, got.Generation)
			}
		})
	}
}

// A new field of a job is kept by its snapshots, or need not be: say which, here.
func TestFieldsOfSnapshots(t *testing.T) {
	const kept = "created tokens at settings paused ended " + // of a job
		"number id running ranks rounds agent control plan sizes waiting ran newest limits problem " + // of its generation
		"rounds newest samples counts paces history " // of its record
	const anew = "name config inbox shown born mu begun headless failed wake done over looked job last messages bytes sum refused metrics "
	const parts = "tokens journal gen record " // whose fields are looked at themselves
	for _, of := range []reflect.Type{reflect.TypeFor[job](), reflect.TypeFor[generation](), reflect.TypeFor[record](), reflect.TypeFor[jobJournal](), reflect.TypeFor[keyring]()} {
		for f := range of.Fields() {
			if !strings.Contains(" "+kept+anew+parts, " "+f.Name+" ") {
				t.Errorf("%s.%s is new: keep it in snapshot or rest and in TestStoppedAnywhere, or say here that it is made anew", of, f.Name)
			}
		}
	}
}

// A service that ends before it has written a snapshot leaves the next one as much less to wait for.
func TestSnapshotsAcrossStarts(t *testing.T) {
	j := openJournal(t, t.TempDir())
	var sizes export.Sizes
	for k := range 4 {
		c, s := newClient(t, Config{Journal: j, every: 7})
		if k == 0 {
			sizes = c.start("job", "0123456789", 64, 2).Sizes
		}
		sizes = c.play("job", sizes, 2*k, 2, 0.001, 0.002)
		s.Close()
	}
	snapshots := 0
	if _, err := j.Read(t.Context(), "job", 0, func(text []byte) error {
		m, err := decode(text)
		if m != nil && m.Snapshot != nil {
			snapshots++
		}
		return err
	}); err != nil || snapshots != 1 {
		t.Errorf("%d snapshots after 10 messages, %v", snapshots, err)
	}
}

// BenchmarkSnapshot is a snapshot of a job, and reading it: time and bytes.
func BenchmarkSnapshot(b *testing.B) {
	for _, n := range []int{16, 100, 1000, 10_000} {
		c, s := newClient(b, Config{})
		sizes, perSample := c.start("job", "0123456789", 100*n, n).Sizes, make([]float64, n)
		rng := rand.New(rand.NewPCG(1, 2))
		for k := range min(300, 600_000/n) {
			for i := range perSample {
				perSample[i] = 0.001 * float64(1+i%4) * (1 + 0.1*rng.Float64())
			}
			var a answer
			if status := c.do("POST", "/v1/jobs/job/reports", report(sizes, k, perSample...), &a); status != http.StatusOK {
				b.Fatal(status)
			}
			sizes = a.Sizes
		}
		j := s.known("job")
		j.mu.Lock()
		defer j.mu.Unlock()
		j.decideAll()
		var text []byte
		b.Run(fmt.Sprintf("write/%d", n), func(b *testing.B) {
			for b.Loop() {
				kept, err := j.snapshot()
				if err == nil {
					text, err = json.Marshal(message{Version: snapshotVersion, Snapshot: kept})
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(len(text)), "bytes")
		})
		b.Run(fmt.Sprintf("read/%d", n), func(b *testing.B) {
			for b.Loop() {
				m, err := decode(text)
				if err != nil {
					b.Fatal(err)
				}
				again := newJob("job", j.config, nil)
				if err := again.restore(m.Snapshot); err != nil {
					b.Fatal(err)
				}
				again.close()
			}
		})
	}
}
