package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/zeebo/xxh3"

	"evenkeel/agent"
	"evenkeel/internal/race"
	"evenkeel/internal/s3test"
	"evenkeel/internal/slow"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"evenkeel": main, "natsnode": natsNode})
}

// The scripts show every command as a user meets it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"mkpolicy": makePolicy,
			"lines":    waitForLines,
			"cut":      cut,
			"samehash": sameHash,
			"status":   endsWith,
			"mkmodel":  makeModel,
			"mkempty":  makeEmpty,
			"damage":   damage,
			"s3":       storage,
		},
		// Scripts that only ask one goroutine much are left out under the race detector, and ends of long ones where slow tests do not run.
		Condition: func(name string) (bool, error) {
			switch name {
			case "race":
				return race.Enabled, nil
			case "slow":
				return slow.Enabled(), nil
			}
			return false, fmt.Errorf("unknown condition %s", name)
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("NO_COLOR", "1")
			return nil
		},
	})
}

// storage starts a bucket s3://bucket for the rest of the script; later calls say whether it takes
// what is written: s3 [refuse|take].
func storage(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		s, url, stop := s3test.Start()
		ts.Defer(stop)
		ts.Setenv("AWS_ENDPOINT_URL", url)
		buckets.Store(url, s)
		return
	}
	kept, _ := buckets.Load(ts.Getenv("AWS_ENDPOINT_URL"))
	s := kept.(*s3test.Server)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Spoil = nil
	if args[0] == "refuse" {
		s.Spoil = func(w http.ResponseWriter, r *http.Request, _ []byte) bool {
			if r.Method == http.MethodPut {
				s3test.Refuse(w, "AccessDenied", http.StatusForbidden)
			}
			return r.Method == http.MethodPut
		}
	}
}

// buckets are the servers of storage, by address.
var buckets sync.Map

// endsWith runs a command line of evenkeel that must end with the given status and leave
// nothing on standard output: status N ARGS...
func endsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N COMMAND ARGS...")
	}
	err := ts.Exec(args[1], args[2:]...)
	if got := fmt.Sprint(err); got != "exit status "+args[0] {
		ts.Fatalf("%s, want exit status %s", got, args[0])
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("standard output: %s", out)
	}
}

// makePolicy writes the embedded policy, sound or spoilt: mkpolicy FILE
// [truncated|nan|format|record|narrow].
func makePolicy(ts *testscript.TestScript, _ bool, args []string) {
	trained, err := agent.Embedded()
	ts.Check(err)
	path, fault := ts.MkAbs(args[0]), append(args, "")[1]
	switch fault {
	case "record":
		trained.Record.Version = 99
	case "narrow":
		for i := range trained.Record.Low {
			trained.Record.Low[i], trained.Record.High[i] = 50, 51
		}
	}
	ts.Check(trained.Save(path))
	data, err := os.ReadFile(path)
	ts.Check(err)
	switch fault {
	case "truncated":
		data = data[:len(data)-100]
	case "format":
		data = bytes.Replace(data, []byte(`"format_version":"2"`), []byte(`"format_version":"7"`), 1)
	case "nan":
		tensors := data[8+binary.LittleEndian.Uint64(data):]
		before := fmt.Sprintf("%016x", xxh3.Hash(tensors))
		binary.LittleEndian.PutUint32(tensors, math.Float32bits(float32(math.NaN())))
		data = bytes.Replace(data, []byte(before), fmt.Appendf(nil, "%016x", xxh3.Hash(tensors)), 1)
	}
	ts.Check(os.WriteFile(path, data, 0o644))
}

// waitForLines waits until a file has so many lines: lines FILE N.
func waitForLines(ts *testscript.TestScript, _ bool, args []string) {
	var least int
	_, err := fmt.Sscan(args[1], &least)
	ts.Check(err)
	for range 1000 {
		data, _ := os.ReadFile(ts.MkAbs(args[0]))
		if bytes.Count(data, []byte("\n")) >= least {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	ts.Fatalf("%s: fewer than %d lines", args[0], least)
}

// cut takes bytes off the end of a file: cut FILE N.
func cut(ts *testscript.TestScript, _ bool, args []string) {
	var n int64
	_, err := fmt.Sscan(args[1], &n)
	ts.Check(err)
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	ts.Check(os.Truncate(ts.MkAbs(args[0]), info.Size()-n))
}
