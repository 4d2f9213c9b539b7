package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"evenkeel/internal/badinput"
)

// A run that was killed anywhere in a line goes on with whole lines up to its checkpoint.
func TestLosses(t *testing.T) {
	whole := lossHeader + "1,2.5\n2,0.25\n3,1e-05\n"
	for size := range len(whole) + 1 {
		path := filepath.Join(t.TempDir(), "losses.csv")
		if err := os.WriteFile(path, []byte(whole[:size]), 0o600); err != nil {
			t.Fatal(err)
		}
		complete := max(0, strings.Count(whole[:size], "\n")-1)
		step := min(complete, 2)
		l, err := openLosses(path, uint64(step))
		if err != nil {
			t.Fatalf("%d bytes: %v", size, err)
		}
		for k, loss := range []float64{2.5, 0.25, 1e-05}[step:] {
			if err := l.add(uint64(step+k+1), loss); err != nil {
				t.Fatal(err)
			}
		}
		steps, losses, err := l.read()
		if got, _ := os.ReadFile(path); err != nil || string(got) != whole || len(steps) != 3 || losses[1] != 0.25 {
			t.Errorf("%d bytes: %q, %v, %v", size, got, losses, err)
		}
		l.Close()
	}
}

func FuzzLosses(f *testing.F) {
	f.Add(lossHeader+"1,2.5\n2,0.2", uint64(1))
	f.Add("step,", uint64(0))
	f.Fuzz(func(t *testing.T, text string, step uint64) {
		path := filepath.Join(t.TempDir(), "losses.csv")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := openLosses(path, step)
		if err != nil {
			if !badinput.Is(err) {
				t.Fatal(err)
			}
			return
		}
		defer l.Close()
		steps, _, err := l.read()
		for _, s := range steps {
			if s > float64(step) {
				t.Fatalf("step %v of %q is beyond %d", s, text, step)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}
