package checkpoint

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"evenkeel/internal/race"
)

// pagesLost are how many files with zeroed, swapped or lost pages a test opens.
const pagesLost = 10_000

// recordedRun is a run of saves on one or several recorded disks, without overlap.
type recordedRun struct {
	slots  int
	heads  []*header
	first  [][]byte // contents at creation
	events [][]event
}

// after plays a disk's events up to its nth ack; touched are the pages written since the ack before that.
func (r *recordedRun) after(disk, ack int) (now, before map[int64][]byte) {
	pages := map[int64][]byte{}
	acked := 0
	for _, e := range r.events[disk] {
		if e.kind == "ack" {
			if acked++; acked == ack {
				return pages, before
			}
			before = maps.Clone(pages)
		}
		for at := e.at / block * block; e.kind == "write" && at < e.at+int64(len(e.data)); at += block {
			page, ok := pages[at]
			if !ok {
				page = r.first[disk][at : at+block]
			}
			page = slices.Clone(page)
			from := max(at, e.at)
			copy(page[from-at:], e.data[from-e.at:])
			pages[at] = page
		}
	}
	return pages, before
}

func recordDisks(t *testing.T, slots, disks int) *recordedRun {
	t.Helper()
	r := &recordedRun{slots: slots}
	journals := make([]*journal, disks)
	creators := make([]func([]Array, Options) (*File, error), disks)
	for i := range journals {
		journals[i] = &journal{}
		creators[i] = func(part []Array, o Options) (*File, error) {
			m := NewMemory(nil)
			f, err := CreateOn(recorded{m, i, journals[i]}, part, o)
			r.first = append(r.first, m.Contents())
			journals[i].events = nil
			return f, err
		}
	}
	ends := func(step uint64) {
		for _, j := range journals {
			j.add(event{kind: "ack", step: step})
		}
	}
	if disks == 1 {
		f, err := creators[0](model(0), Options{Slots: slots})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r.heads = []*header{f.head}
		for step := uint64(1); step <= 8; step++ {
			save(t, f, step)
			ends(step)
		}
	} else {
		s, err := createSet(creators, model(0), Options{Slots: slots})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, f := range s.files {
			r.heads = append(r.heads, f.head)
		}
		for step := uint64(1); step <= 8; step++ {
			all, err := s.Begin(t.Context(), step)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range model(step) {
				if err := all.Write(a.Name, a.Data); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(all.Commit(state(step)), all.Wait(t.Context())); err != nil {
				t.Fatal(err)
			}
			ends(step)
		}
	}
	for _, j := range journals {
		r.events = append(r.events, slices.Clone(j.events))
	}
	return r
}

// Zeroed, swapped and lost pages, of superblocks, records, manifests and arrays: no restore is empty, none rolls back
// without saying so, and no byte is wrong.
func TestLostPages(t *testing.T) {
	var runs []*recordedRun
	for _, c := range [][2]int{{2, 1}, {3, 1}, {5, 1}, {3, 2}} {
		runs = append(runs, recordDisks(t, c[0], c[1]))
	}
	type state struct{ now, before map[int64][]byte }
	states := map[[3]int]state{}
	models := map[uint64][]Array{}
	for step := uint64(1); step <= 8; step++ {
		models[step] = model(step)
	}
	r := rand.New(rand.NewPCG(5, 6))
	outcomes := map[string]int{}
	n := pagesLost
	if testing.Short() || race.Enabled {
		n /= 20
	}
	for trial := range n {
		k := r.IntN(len(runs))
		run, acked := runs[k], 1+r.IntN(8)
		hit := r.IntN(len(run.heads))
		kind := []string{"zeroed", "swapped", "lost"}[r.IntN(3)]
		disks := make([]*afterCrash, len(run.heads))
		what := ""
		for d := range disks {
			key := [3]int{k, d, acked}
			if _, ok := states[key]; !ok {
				now, before := run.after(d, acked)
				states[key] = state{now, before}
			}
			s := states[key]
			disks[d] = &afterCrash{Memory: NewMemory(run.first[d]), unit: block, patch: s.now}
			if d == hit {
				disks[d].patch, what = damagePages(r, run.heads[d], run.first[d], s.now, s.before, kind)
			}
		}
		outcome, err := judgePages(run, disks, uint64(acked), models)
		if err != nil {
			t.Fatalf("trial %d, %d slots, %d files, %d saves, %s: %v", trial, run.slots, len(disks), acked, what, err)
		}
		outcomes[kind+": "+outcome]++
	}
	t.Log(outcomes)
	for _, must := range []string{"zeroed: refused", "zeroed: older, said", "zeroed: newest", "swapped: older, said", "lost: older, said", "lost: newest"} {
		if outcomes[must] == 0 {
			t.Errorf("no trial ended as %q: the damage is not what it should be", must)
		}
	}
}

// damagePages changes pages that count for something. Of a lost write, not all record pages: a file of which all are what
// they were before is the file before.
func damagePages(r *rand.Rand, h *header, first []byte, now, before map[int64][]byte, kind string) (map[int64][]byte, string) {
	page := func(at int64) []byte {
		if p, ok := now[at]; ok {
			return p
		}
		return first[at : at+block]
	}
	groups := [][]int64{{0, block}, {h.tables[0], h.tables[1]}, nil, nil, nil}
	for slot := range h.slots {
		groups[2] = append(groups[2], h.record(slot))
		groups[3] = append(groups[3], h.slot(slot)+h.manifestAt)
		for _, o := range h.offsets {
			groups[4] = append(groups[4], h.slot(slot)+o)
		}
	}
	out := maps.Clone(now)
	if kind == "zeroed" && r.IntN(8) == 0 { // all records, or all manifests too
		for _, at := range slices.Concat(groups[2 : 3+r.IntN(2)]...) {
			out[at] = make([]byte, block)
		}
		return out, "all records zeroed"
	}
	at := groups[r.IntN(len(groups))]
	if kind == "lost" { // writes since the save before
		var written []int64
		for p := range now {
			old, ok := before[p]
			if !ok {
				old = first[p : p+block]
			}
			if !bytes.Equal(old, now[p]) {
				written = append(written, p)
			}
		}
		slices.Sort(written)
		if at = groups[2]; r.IntN(2) == 0 {
			at = written
		}
	}
	var names []string
	count := 1 + r.IntN(h.slots-1)
	records := 0
	for range count {
		p, q := at[r.IntN(len(at))], at[r.IntN(len(at))]
		switch kind {
		case "zeroed":
			out[p] = make([]byte, block)
		case "swapped":
			if q == p {
				q = groups[2][r.IntN(h.slots)]
			}
			out[p], out[q] = page(q), page(p)
		default:
			if slices.Contains(groups[2], p) {
				if records++; records == h.slots {
					continue
				}
			}
			if old, ok := before[p]; ok {
				out[p] = old
			} else {
				delete(out, p)
			}
		}
		names = append(names, fmt.Sprintf("%s page at %d", kind, p))
	}
	return out, strings.Join(names, ", ")
}

func judgePages(run *recordedRun, disks []*afterCrash, acked uint64, models map[uint64][]Array) (string, error) {
	var set Set
	set.rank = map[string]int{}
	arrays := model(0)
	for i, d := range disks {
		f, err := OpenOn(d, nil, Options{ReadOnly: true})
		if err != nil {
			if !typed(err) {
				return "", fmt.Errorf("error of no type: %w", err)
			}
			return "refused", nil
		}
		set.files = append(set.files, f)
		for _, a := range f.head.arrays {
			set.rank[a.Name] = i
		}
	}
	var got State
	var reports []Report
	var err error
	if len(disks) == 1 {
		var report Report
		got, report, err = set.files[0].Restore(arrays)
		reports = []Report{report}
	} else {
		got, reports, err = set.Restore(arrays)
	}
	if errors.Is(err, ErrEmpty) {
		return "", errors.New("empty")
	}
	if err != nil {
		if !typed(err) {
			return "", fmt.Errorf("error of no type: %w", err)
		}
		return "refused", nil
	}
	for i, a := range arrays {
		if !bytes.Equal(a.Data, models[got.Step][i].Data) {
			return "", fmt.Errorf("array %s is not that of step %d", a.Name, got.Step)
		}
	}
	if got.Step == acked {
		return "newest", nil
	}
	for _, report := range reports {
		said := len(report.Damage) > 0
		for _, s := range report.Slots {
			said = said || s.Fault != ""
		}
		if said {
			return "older, said", nil
		}
	}
	return "", fmt.Errorf("rolled back to step %d of %d without a word: %+v", got.Step, acked, reports)
}
