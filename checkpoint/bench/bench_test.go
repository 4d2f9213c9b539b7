package bench

import (
	"os"
	"runtime"
	"testing"
)

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
