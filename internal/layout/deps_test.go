package layout

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

const maxAllocateBytes = 4_000_000 // a program that prints hello has 2.4 MB

// most are the packages of other modules that a program takes over with one of ours.
var most = map[string]int{"./cluster": 0, "./env": 15, "./agent": 15}

// A program that embeds the core must not take over a tree of dependencies with it.
func TestCoreHasFewDependencies(t *testing.T) {
	for pkg, n := range most {
		if external := externalPackages(t, pkg); len(external) > n {
			t.Errorf("%s needs %d packages of other modules, at most %d:\n%s", pkg, len(external), n, strings.Join(external, "\n"))
		}
	}
}

// externalPackages are those that a package needs, transitively, of other modules.
func externalPackages(t *testing.T, pkg string) []string {
	t.Helper()
	command := exec.Command("go", "list", "-deps", "-f", "{{if not .Standard}}{{.ImportPath}}{{end}}", pkg)
	command.Dir = root
	out, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var external []string
	for _, path := range strings.Fields(string(out)) {
		if !within(path, strings.TrimSuffix(module, "/")) {
			external = append(external, path)
		}
	}
	return external
}

const allocateProgram = `package main

import (
	"fmt"

	"evenkeel/cluster"
)

func main() {
	c := &cluster.Cluster{GlobalBatch: 96, Nodes: []cluster.Node{{Name: "a", Limit: 64}, {Name: "b", Limit: 64}}}
	sizes := make([]int, len(c.Nodes))
	seconds, err := cluster.Allocate(c, nil, []cluster.Performance{{PerSample: 0.1}, {PerSample: 0.2}}, sizes)
	fmt.Println(sizes, seconds, err)
}
`

// The linker drops what a program does not reach: what stays is what package variables and
// initialisers of the core hold fast.
func TestProgramThatAllocatesIsSmall(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the limit is for linux/amd64")
	}
	dir := t.TempDir()
	source, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "allocate")
	if err := os.WriteFile(source, []byte(allocateProgram), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.Command("go", "build", "-o", program, source)
	command.Dir = root // so that the import means this module
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes", info.Size())
	if info.Size() > maxAllocateBytes {
		t.Errorf("%d bytes, at most %d: go tool nm -size -sort size shows what is linked", info.Size(), maxAllocateBytes)
	}
}
