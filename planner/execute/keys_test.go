package execute

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	now := time.Now()
	make1 := func(t *testing.T, at time.Time) string {
		t.Helper()
		dir := filepath.Join(t.TempDir(), "keys")
		if err := MakeKeys(dir, 3, at, time.Hour); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := make1(t, now)
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 7 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		if info, err := f.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", f.Name(), info.Mode(), err)
		}
	}
	if err := MakeKeys(dir, 1, now, time.Hour); !errors.Is(err, errKeys) || !strings.Contains(err.Error(), "there already") {
		t.Error("overwritten:", err)
	}
	for _, c := range []struct {
		stages int
		valid  time.Duration
	}{{0, time.Hour}, {MaxStages + 1, time.Hour}, {1, 0}, {1, 1 << 62}} {
		if err := MakeKeys(t.TempDir(), c.stages, now, c.valid); !errors.Is(err, errKeys) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	copyFile := func(from, to string) {
		t.Helper()
		text, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for want, spoil := range map[string]func(t *testing.T) (string, time.Time){
		"expired on":               func(t *testing.T) (string, time.Time) { return make1(t, now.Add(-2*time.Hour)), now },
		"is valid from":            func(t *testing.T) (string, time.Time) { return make1(t, now.Add(3*time.Hour)), now },
		"evenkeel plan keys makes": func(t *testing.T) (string, time.Time) { return t.TempDir(), now },
		"can be read by others": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			if err := os.Chmod(filepath.Join(d, keyFile(1)), 0o640); err != nil {
				t.Fatal(err)
			}
			return d, now
		},
		"is not signed by": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(dir, authorityFile), filepath.Join(d, authorityFile))
			return d, now
		},
		"is not stage 1's": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(d, certificateFile(2)), filepath.Join(d, certificateFile(1)))
			copyFile(filepath.Join(d, keyFile(2)), filepath.Join(d, keyFile(1)))
			return d, now
		},
		"private key does not match": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(d, keyFile(2)), filepath.Join(d, keyFile(1)))
			return d, now
		},
		"holds no certificate": func(t *testing.T) (string, time.Time) {
			d := make1(t, now)
			copyFile(filepath.Join(d, keyFile(2)), filepath.Join(d, authorityFile))
			return d, now
		},
	} {
		d, at := spoil(t)
		if _, err := LoadKeys(d, 1, at); !errors.Is(err, errKeys) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
