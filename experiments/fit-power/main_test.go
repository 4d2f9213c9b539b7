package main

import (
	"os"
	"path/filepath"
	"testing"
)

// The highest limit alone counts; busy is the median over networks of their highest
// power, idle the lowest power.
func TestRun(t *testing.T) {
	data, out := t.TempDir(), t.TempDir()
	text := "device_type,network,batch_size,power_limit_w,average_power_w\n" +
		"v100,a,8,100,20\nv100,a,8,250,90\nv100,a,16,250,200\nv100,b,8,250,240\nv100,c,8,250,40\nv100,a,32,200,999\n" +
		"p100,a,8,250,150\np100,b,8,250,50\nrtx6000,a,8,260,1\n"
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(data, "zeus"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(data, "zeus", "power_limit_epoch_time.csv"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	if err := run(data, out); err != nil {
		t.Fatal(err)
	}
	want := "device,idle_watts,busy_watts,samples,source\np100,50.0,100.0,2,zeus\nv100,40.0,200.0,4,zeus\nv100-16g,40.0,200.0,4,zeus\n"
	if got, err := os.ReadFile(filepath.Join(out, "power.csv")); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	for _, bad := range []string{text + "v100,a,8,250,NaN\n", text + "v100,a,8,250,0\n", text + "v100,a,8,,1\n", "device_type,network,power_limit_w,average_power_w\nv100,a,250,1\n"} {
		write(bad)
		if err := run(data, out); err == nil {
			t.Errorf("accepted: %s", bad)
		}
	}
}
