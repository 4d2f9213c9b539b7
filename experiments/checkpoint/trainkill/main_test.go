package main

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// The test's own binary is the process that is killed.
const childEnv = "EVENKEEL_TRAINKILL_STAGED"

func TestMain(m *testing.M) {
	if staged, ok := os.LookupEnv(childEnv); ok {
		if err := trainOn(os.Args[1], staged == "true"); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func TestKills(t *testing.T) {
	r, err := run(t.Context(), 24, 3, func(path string, staged bool) []string {
		t.Setenv(childEnv, strconv.FormatBool(staged))
		return []string{os.Args[0], path}
	}, func(int) {})
	if err != nil || r.Kills != 24 || r.Restores == 0 || r.Durable == 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

// The comparison finds what it is there for.
func TestCheck(t *testing.T) {
	want := []string{"a 0", "b 1", "c 2"}
	for line, fault := range map[string]string{
		"restored 1 x 1": "undisturbed run has b 1", "done 2 b 1": "undisturbed run has c 2", "restored 0 a 0": "step 1 was durable", "nonsense": "nonsense", "durable 9": "durable 9",
	} {
		durable := 1
		if _, err := new(result).check([]string{line}, want, &durable); err == nil || !strings.Contains(err.Error(), fault) {
			t.Errorf("%q: %v", line, err)
		}
	}
	durable := 1
	if ended, err := new(result).check([]string{"restored 1 b 1", "durable 2", "done 2 c 2"}, want, &durable); err != nil || !ended || durable != 2 {
		t.Errorf("ended %v, durable %d, %v", ended, durable, err)
	}
}
