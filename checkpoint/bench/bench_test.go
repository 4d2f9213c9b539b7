package bench

import (
	"context"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// What is cut short, by time or by hand, gives what whole trials have shown, says so, and leaves nothing behind.
func TestPartial(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits are measured on Linux only")
	}
	small := Config{Folder: t.TempDir(), Bytes: 4 << 20, Layers: 4, Trials: 500, Steps: 3}
	timed := small
	timed.Limit = time.Millisecond
	last := 0
	timed.Progress = func(done, total int) {
		if done < last || done >= total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last = done
	}
	r, err := Run(t.Context(), timed)
	if err != nil || len(r.PersistTrials) != 1 || len(r.StepTrials[none]) != 1 || !strings.Contains(r.Partial, "1 of 500 trials of the disk") || !strings.Contains(r.Partial, "1 of 500 trials of steps") {
		t.Errorf("%d and %d trials, %q, %v", len(r.PersistTrials), len(r.StepTrials[none]), r.Partial, err)
	}
	if last < 2*perTrial+3+len(savings) {
		t.Errorf("%d reports", last)
	}
	// By hand, in the third trial of the disk, between writes and reads; and before the first is complete.
	for at, want := range map[int]int{3*perTrial + 8: 2, 5: 0} {
		ctx, stop := context.WithCancel(t.Context())
		by := small
		by.Progress = func(done, _ int) {
			if done == at {
				stop()
			}
		}
		r, err := Run(ctx, by)
		stop()
		if !errors.Is(err, context.Canceled) || len(r.PersistTrials) != want || len(r.RestoreTrials) != want || !strings.Contains(r.Partial, "interrupted") {
			t.Errorf("interrupted after %d: %d trials, %q, %v", at, len(r.PersistTrials), r.Partial, err)
		}
		if want > 0 && (r.PersistOverLimit <= 0 || len(r.Write) == 0) {
			t.Errorf("what was measured is lost: %+v", r)
		}
	}
	if left, _ := os.ReadDir(small.Folder); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestRun(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("limits are measured on Linux only")
	}
	dir := t.TempDir()
	r, err := Run(t.Context(), Config{Folder: dir, Bytes: 4 << 20, Layers: 4, Trials: 2, Steps: 3})
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range map[string]float64{
		"persist": r.PersistOverLimit, "restore": r.RestoreOverLimit, "step": r.StepSeconds, "sync": r.StepRatioSync,
		"staged": r.StepRatioStaged, "zerocopy": r.StepRatioZeroCopy, "at the interval": r.StepRatioInterval, "interval": float64(r.IntervalSteps),
	} {
		if v <= 0 {
			t.Errorf("%s is %v", name, v)
		}
	}
	if r.StagingBytes != r.Bytes {
		t.Errorf("staging took %d bytes, want one model state, %d", r.StagingBytes, r.Bytes)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	if err := (Config{Trials: -1, Bytes: 5}).Validate(); err == nil {
		t.Error("a wrong configuration is taken")
	}
}
