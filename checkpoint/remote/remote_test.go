package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"evenkeel/checkpoint"
	"evenkeel/internal/s3test"
)

func serve(t *testing.T) (*s3test.Server, *Store) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret-word")
	t.Setenv("AWS_SESSION_TOKEN", "")
	s, url, stop := s3test.Start()
	t.Cleanup(stop)
	store, err := Open(Config{URL: "s3://bucket/run", Endpoint: url, Stall: 300 * time.Millisecond, Retries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return s, store
}

// job makes the files of two ranks with these steps, each with contents of its own.
func job(t *testing.T, folder string, steps ...uint64) []string {
	t.Helper()
	var paths []string
	for rank := range 2 {
		path := filepath.Join(folder, fmt.Sprintf("run.ckpt.g1.%dof2", rank))
		f, err := checkpoint.Create(path, named(rank, 0), checkpoint.Options{Rank: rank, Ranks: 2, ID: [16]byte{7}})
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range steps {
			save, err := f.Begin(context.Background(), step)
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range named(rank, step) {
				if err := save.Write(a.Name, a.Data); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(save.Commit(checkpoint.State{Step: step, Cursor: 5 * step, Random: []byte{byte(rank), 1}}), save.Wait(context.Background()), f.Acknowledge(step)); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

func named(rank int, step uint64) []checkpoint.Array {
	w, m := make([]float32, 3000), make([]float32, 7)
	for i := range w {
		w[i] = float32(rank) + float32(step)*float32(i)
	}
	m[3] = float32(step)
	return []checkpoint.Array{checkpoint.Of(fmt.Sprintf("w%d", rank), checkpoint.Parameter, w), checkpoint.Of(fmt.Sprintf("w%d.m", rank), checkpoint.Moment, m)}
}

// holds says whether the files of a folder hold a step's contents.
func holds(t *testing.T, folder string, step uint64) {
	t.Helper()
	for rank := range 2 {
		f, err := checkpoint.Open(filepath.Join(folder, fmt.Sprintf("run.ckpt.g1.%dof2", rank)), nil, checkpoint.Options{ReadOnly: true})
		if err != nil {
			t.Fatal(err)
		}
		got := named(rank, 99)
		state, _, err := f.RestoreStep(got, step)
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range named(rank, step) {
			if !bytes.Equal(want.Data, got[i].Data) || want.Kind != f.Arrays()[slices.IndexFunc(f.Arrays(), func(a checkpoint.Array) bool { return a.Name == want.Name })].Kind {
				t.Errorf("rank %d: %s differs", rank, want.Name)
			}
		}
		if i := f.Info(); state.Cursor != 5*step || !bytes.Equal(state.Random, []byte{byte(rank), 1}) || i.Rank != rank || i.Ranks != 2 || !strings.HasPrefix(i.ID, "0700") {
			t.Errorf("rank %d: %+v, %+v", rank, state, i)
		}
		f.Close()
	}
}

func TestThereAndBack(t *testing.T) {
	s, store := serve(t)
	ctx := context.Background()
	if _, _, err := store.Download(ctx, t.TempDir(), nil, checkpoint.Options{}); !errors.Is(err, ErrNone) {
		t.Errorf("nothing is there: %v", err)
	}
	paths := job(t, t.TempDir(), 3, 8)
	if _, _, err := store.Upload(ctx, job(t, t.TempDir())); !errors.Is(err, checkpoint.ErrEmpty) {
		t.Errorf("nothing was saved: %v", err)
	}
	if step, uploaded, err := store.Upload(ctx, paths); step != 8 || !uploaded || err != nil {
		t.Fatal(step, uploaded, err)
	}
	if step, uploaded, err := store.Upload(ctx, paths); step != 8 || uploaded || err != nil {
		t.Error(step, uploaded, err)
	}
	folder := t.TempDir()
	got, faults, err := store.Download(ctx, folder, nil, checkpoint.Options{})
	if err != nil || got.Step != 8 || len(faults) > 0 {
		t.Fatal(got, faults, err)
	}
	holds(t, folder, 8)
	if _, _, err := store.Download(ctx, folder, nil, checkpoint.Options{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("files are there: %v", err)
	}
	holds(t, folder, 8)
	// A step counts with its list alone, and older ones stay until they are pruned.
	if step, _, err := store.Upload(ctx, job(t, t.TempDir(), 11)); step != 11 || err != nil {
		t.Fatal(step, err)
	}
	delete(s.Objects, store.folder(8)+listName)
	if steps, err := store.Steps(ctx); err != nil || !slices.Equal(steps, []uint64{11}) {
		t.Error(steps, err)
	}
	if _, _, err := store.Upload(ctx, paths); err != nil {
		t.Error(err)
	}
	if steps, err := store.Steps(ctx); err != nil || !slices.Equal(steps, []uint64{11, 8}) {
		t.Error(steps, err)
	}
	if err := store.Prune(ctx, 1); err != nil {
		t.Error(err)
	}
	if keys := slices.Sorted(maps.Keys(s.Objects)); len(keys) != 3 || !strings.HasPrefix(keys[0], store.folder(11)) {
		t.Error(keys)
	}
	// Of two that are kept both are whole: damaged ones do not count.
	for _, step := range []uint64{12, 13, 14} {
		if _, _, err := store.Upload(ctx, job(t, t.TempDir(), step)); err != nil {
			t.Fatal(err)
		}
	}
	s.Objects[store.folder(14)+"1.safetensors"] = []byte("short")
	delete(s.Objects, store.folder(13)+"0.safetensors")
	if err := store.Prune(ctx, 2); err != nil {
		t.Error(err)
	}
	if steps, err := store.Steps(ctx); err != nil || !slices.Equal(steps, []uint64{14, 13, 12, 11}) {
		t.Error(steps, err)
	}
	if err := store.Prune(ctx, 1); err != nil {
		t.Error(err)
	}
	if steps, err := store.Steps(ctx); err != nil || !slices.Equal(steps, []uint64{14, 13, 12}) {
		t.Error(steps, err)
	}
	if err := store.Prune(ctx, 0); !errors.Is(err, ErrConfig) {
		t.Error(err)
	}
}

func TestOtherBytes(t *testing.T) {
	s, store := serve(t)
	ctx := context.Background()
	for _, step := range []uint64{4, 6} {
		if _, _, err := store.Upload(ctx, job(t, t.TempDir(), step)); err != nil {
			t.Fatal(err)
		}
	}
	good := maps.Clone(s.Objects)
	part, list := store.folder(6)+"1.safetensors", store.folder(6)+listName
	list6 := func(change func(*List)) func() {
		return func() {
			var l List
			if err := json.Unmarshal(good[list], &l); err != nil {
				t.Fatal(err)
			}
			change(&l)
			s.Objects[list], _ = json.Marshal(l)
		}
	}
	six := uint64(6)
	for name, spoil := range map[string]func(){
		"a bit":                 func() { s.Objects[part] = bytes.Clone(good[part]); s.Objects[part][9000] ^= 4 },
		"a bit of the header":   func() { s.Objects[part] = bytes.Clone(good[part]); s.Objects[part][40] ^= 4 },
		"cut":                   func() { s.Objects[part] = good[part][:5000] },
		"another step's":        func() { s.Objects[part] = good[store.folder(4)+"1.safetensors"] },
		"missing":               func() { delete(s.Objects, part) },
		"a list of nothing":     func() { s.Objects[list] = []byte("{}") },
		"a list in another way": func() { s.Objects[list] = []byte("<html>") },
		"a list of another":     func() { s.Objects[list] = good[store.folder(4)+listName] },
		"a name elsewhere":      list6(func(l *List) { l.Files[0].Name = "../run.ckpt" }),
		"no name":               list6(func(l *List) { l.Files[0].Name = "" }),
		"a newer version":       list6(func(l *List) { l.Version = 2 }),
		"two of a name":         list6(func(l *List) { l.Files[0].Name = l.Files[1].Name }),
	} {
		maps.Copy(s.Objects, good)
		spoil()
		folder := t.TempDir()
		if _, _, err := store.Download(ctx, folder, &six, checkpoint.Options{}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		if left, _ := os.ReadDir(folder); len(left) > 0 {
			t.Errorf("%s: left %v", name, left)
		}
		got, faults, err := store.Download(ctx, folder, nil, checkpoint.Options{})
		if err != nil || got.Step != 4 || len(faults) != 1 {
			t.Errorf("%s: fell back to %v, %v, %v", name, got.Step, faults, err)
			continue
		}
		holds(t, folder, 4)
	}
}

func TestRefusedAndSlow(t *testing.T) {
	s, store := serve(t)
	ctx := context.Background()
	paths := job(t, t.TempDir(), 4)
	if _, _, err := store.Upload(ctx, paths); err != nil {
		t.Fatal(err)
	}
	good := maps.Clone(s.Objects)
	newer := job(t, t.TempDir(), 5)
	stop := make(chan struct{})
	defer close(stop)
	for name, c := range map[string]struct {
		spoil func(w http.ResponseWriter, r *http.Request, body []byte) bool
		want  string
	}{
		"refuses writing": {func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method == http.MethodPut {
				s3test.Refuse(w, "AccessDenied", http.StatusForbidden)
			}
			return r.Method == http.MethodPut
		}, "the keys may not do this"},
		"refuses the list": {func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			bad := r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, listName)
			if bad {
				s3test.Refuse(w, "SignatureDoesNotMatch", http.StatusForbidden)
			}
			return bad
		}, "AWS_SECRET_ACCESS_KEY is not the key's"},
		"hangs": {func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method != http.MethodPut {
				return false
			}
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return true
		}, "too slow"},
		"breaks off": {func(_ http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method == http.MethodPut {
				panic(http.ErrAbortHandler)
			}
			return false
		}, "foreign host"},
	} {
		s.Mu.Lock()
		s.Spoil = c.spoil
		s.Mu.Unlock()
		begun := time.Now()
		_, _, err := store.Upload(ctx, newer)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "s3://bucket/run at 127.0.0.1") {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "a-secret-word") {
			t.Errorf("%s: the secret is in %v", name, err)
		}
		if d := time.Since(begun); d > 20*time.Second {
			t.Errorf("%s: %v", name, d)
		}
		s.Mu.Lock()
		s.Spoil = nil
		s.Mu.Unlock()
		if steps, err := store.Steps(ctx); err != nil || !slices.Equal(steps, []uint64{4}) {
			t.Errorf("%s: then %v, %v", name, steps, err)
		}
		for k, v := range good {
			if !bytes.Equal(s.Objects[k], v) {
				t.Errorf("%s: %s changed", name, k)
			}
		}
	}
	if _, uploaded, err := store.Upload(ctx, newer); !uploaded || err != nil {
		t.Errorf("tried again: %v", err)
	}
}

// Which time-out of a silent server is met first depends on the machine. That of its headers
// looks like a context's.
func TestNoHeader(t *testing.T) {
	stop := make(chan struct{})
	h := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-stop }))
	defer h.Close()
	defer close(stop)
	client := http.Client{Transport: &http.Transport{ResponseHeaderTimeout: 20 * time.Millisecond}}
	r, err := client.Get(h.URL)
	if err == nil {
		_ = r.Body.Close()
		t.Fatal("the server answered")
	}
	if got := new(Store).explain("upload", err).Error(); !strings.Contains(got, "too slow") {
		t.Error(got)
	}
	if got := new(Store).explain("upload", context.Canceled).Error(); strings.Contains(got, "too slow") {
		t.Error(got)
	}
}

// What goes wrong while it follows a job is told and tried again; it ends with its context.
func TestFollow(t *testing.T) {
	s, store := serve(t)
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	paths := job(t, t.TempDir(), 4)
	refused := 0
	s.Spoil = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		if r.Method == http.MethodPut && refused < 1 {
			refused++
			s3test.Refuse(w, "AccessDenied", http.StatusForbidden)
			return true
		}
		return false
	}
	var told []string
	store.Follow(ctx, paths, 20*time.Millisecond, 2, func(step uint64, uploaded bool, err error) {
		told = append(told, fmt.Sprint(step, uploaded, err == nil))
		if len(told) == 3 {
			stop()
		}
	})
	if want := []string{"0 false false", "4 true true", "4 false true"}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestConfig(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "a-secret-word")
	t.Setenv("AWS_ENDPOINT_URL", "")
	for _, c := range []Config{
		{URL: "bucket"}, {URL: "s3://"}, {URL: "http://bucket/x"}, {URL: "s3://user:a-secret-word@bucket/x"}, {URL: "s3://bucket", Endpoint: "127.0.0.1:9000"},
		{URL: "s3://bucket", Endpoint: "http://user:a-secret-word@host"}, {URL: "s3://bucket", Endpoint: "http://host/path"}, {URL: "s3://bucket", Endpoint: "ftp://host"},
	} {
		if _, err := Open(c); !errors.Is(err, ErrConfig) || strings.Contains(err.Error(), "a-secret-word") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := Open(Config{URL: "s3://bucket/x"}); err != nil {
		t.Error(err)
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	if _, err := Open(Config{URL: "s3://bucket/x"}); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), "AWS_SECRET_ACCESS_KEY") {
		t.Errorf("without keys: %v", err)
	}
}

// A job's name stands for the newest set of files that is complete.
func TestFiles(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "run.ckpt")
	for _, c := range []struct{ made, want string }{
		{"run.ckpt.g1.0of2", "run.ckpt"}, {"run.ckpt.g1.1of2", "run.ckpt.g1.0of2 run.ckpt.g1.1of2"}, {"run.ckpt.g10.0of2", "run.ckpt.g1.0of2 run.ckpt.g1.1of2"},
		{"run.ckpt.g9.0of1", "run.ckpt.g9.0of1"}, {"run.ckpt.g11.0of1.creating", "run.ckpt.g9.0of1"}, {"run.ckpt.g10.1of2", "run.ckpt.g10.0of2 run.ckpt.g10.1of2"}, {"run.ckpt", "run.ckpt"},
	} {
		if err := os.WriteFile(filepath.Join(folder, c.made), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range Files([]string{path}) {
			got = append(got, filepath.Base(p))
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("with %s: %q, want %q", c.made, got, c.want)
		}
	}
}

// What one rank has not saved yet is not uploaded.
func TestAllFilesHaveIt(t *testing.T) {
	_, store := serve(t)
	paths := []string{job(t, t.TempDir(), 3, 8)[0], job(t, t.TempDir(), 3)[1]}
	if step, uploaded, err := store.Upload(context.Background(), paths); step != 3 || !uploaded || err != nil {
		t.Errorf("step %d, %v, %v", step, uploaded, err)
	}
}
