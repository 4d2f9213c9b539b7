package main

import (
	"encoding/json"
	"slices"

	"github.com/rogpeppe/go-internal/testscript"
)

// sameHash compares the weights' hashes of two --json documents: samehash FILE FILE.
func sameHash(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: samehash FILE FILE")
	}
	var all []string
	for _, name := range args {
		var d struct {
			Hash any `json:"weights_hash"`
		}
		if err := json.Unmarshal([]byte(ts.ReadFile(name)), &d); err != nil {
			ts.Fatalf("%s: %v", name, err)
		}
		switch h := d.Hash.(type) {
		case string:
			all = append(all, h)
		case []any:
			for _, x := range h {
				all = append(all, x.(string))
			}
		}
	}
	if len(all) < 2 || all[0] == "" || slices.ContainsFunc(all, func(h string) bool { return h != all[0] }) {
		ts.Fatalf("hashes %v", all)
	}
}
