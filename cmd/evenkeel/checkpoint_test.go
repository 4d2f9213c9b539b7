package main

import (
	"bytes"
	"fmt"
	"os"

	"github.com/rogpeppe/go-internal/testscript"

	"evenkeel/checkpoint"
)

// makeModel writes a safetensors file: mkmodel FILE.
func makeModel(ts *testscript.TestScript, _ bool, args []string) {
	var b bytes.Buffer
	ts.Check(checkpoint.WriteSafetensors(&b, []checkpoint.Array{
		checkpoint.Of("a", checkpoint.Parameter, []float32{1, 2, 3, 4}, 2, 2),
		checkpoint.Of("b", checkpoint.Buffer, []int64{5}),
	}, checkpoint.State{}))
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), b.Bytes(), 0o644))
}

// makeEmpty makes a checkpoint file without a checkpoint: mkempty FILE.
func makeEmpty(ts *testscript.TestScript, _ bool, args []string) {
	f, err := checkpoint.Create(ts.MkAbs(args[0]), []checkpoint.Array{checkpoint.Of("a", checkpoint.Parameter, []float32{1})}, checkpoint.Options{Slots: 2})
	ts.Check(err)
	ts.Check(f.Close())
}

// damage flips a bit: damage FILE BYTE; a negative one counts from the end.
func damage(ts *testscript.TestScript, _ bool, args []string) {
	var at int
	_, err := fmt.Sscan(args[1], &at)
	ts.Check(err)
	data, err := os.ReadFile(ts.MkAbs(args[0]))
	ts.Check(err)
	data[(at+len(data))%len(data)] ^= 1
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), data, 0o644))
}
