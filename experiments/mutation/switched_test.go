package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// every has one of each operator, nested, beside constants and what is not a number.
const every = `package main

type length float64

const limit = 3 * 4

func f(a, b int, x length, s string, err error) (n int, y length, out string, differ, above bool) {
	for i := a; i < b+1 && i > -9; i++ {
		n += i*2 - a%5
		n--
	}
	switch {
	case x <= 2.5*x/2 && err == nil, s >= "m":
		n = -n
	case a > limit:
		n++
	}
	return n, -x * 3, s + "!", b != n, x-1 > 0
}
`

// call prints what every function of a list returns for some arguments.
const call = `package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

func main() {
	i, _ := strconv.Atoi(os.Args[1])
	f := all[i]
	fmt.Println(f(1, 9, 2, "a", nil))
	fmt.Println(f(20, 30, 0.5, "z", errors.New("e")))
	fmt.Println(f(3, 3, -1, "b", errors.New("e")))
	fmt.Println(f(13, 12, 0, "m", nil))
	fmt.Println(f(13, 14, 1, "b", nil))
	fmt.Println(f(12, 12, 1, "b", errors.New("e")))
}
`

// A switched program does what the program does, and with a mutant's number what the program with that token in its place
// does.
func TestSwitched(t *testing.T) {
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "every.go", every, 0)
	if err != nil {
		t.Fatal(err)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{}}
	if _, err := (&types.Config{}).Check("main", files, []*ast.File{file}, info); err != nil {
		t.Fatal(err)
	}
	text, ids := switchFile(files, info, file, []byte(every), nil, nil)
	// Two for each order, one for each other operator; none for 3 * 4, -9 and s + "!".
	if want := 6*2 + 15; len(ids) != want {
		t.Errorf("%d mutants, want %d: %q", len(ids), want, ids)
	}
	_, body, _ := strings.Cut(every, "func f")
	mutants, all := strings.Replace(every, "func f", "func f0", 1), "f0"
	for i, id := range ids {
		mutants += fmt.Sprintf("\nfunc f%d%s", i+1, strings.TrimPrefix(mutate(t, id), strings.TrimSuffix(every, body)))
		all += fmt.Sprintf(", f%d", i+1)
	}
	alone := programOf(t, mutants, "package main\nvar all = []func(int, int, length, string, error) (int, length, string, bool, bool){"+all+"}", call)
	switched := programOf(t, string(text), "package main\n"+switchSource, "package main\nvar all = []func(int, int, length, string, error) (int, length, string, bool, bool){f}", call)
	plain, different := alone(0, 0), 0
	if got := switched(0, 0); got != plain {
		t.Errorf("no mutant: %q, want %q", got, plain)
	}
	for i, id := range ids {
		want := alone(i+1, 0)
		if got := switched(0, i+1); got != want {
			t.Errorf("%s: %q, want %q", id, got, want)
		}
		if want != plain {
			different++
		}
	}
	if different < len(ids)*3/4 {
		t.Errorf("%d of %d mutants make a difference", different, len(ids))
	}
}

// mutate is every with a mutant in its place.
func mutate(t *testing.T, id string) string {
	t.Helper()
	at := strings.SplitN(id, ":", 4)
	line, err := strconv.Atoi(at[1])
	if err != nil {
		t.Fatal(err)
	}
	column, err := strconv.Atoi(at[2])
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(every, "\n")
	l := lines[line-1]
	after := strings.TrimLeft(l[column-1:], "+-*/%<>=!")
	lines[line-1] = l[:column-1] + at[3] + after
	return strings.Join(lines, "\n")
}

// programOf builds a program; the function runs one of its functions with one of its mutants.
func programOf(t *testing.T, sources ...string) func(function, mutant int) string {
	t.Helper()
	dir := t.TempDir()
	for i, s := range sources {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.go", i)), []byte(s), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module every\n\ngo 1.26\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "every")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, out, strings.Join(sources, "\n"))
	}
	return func(function, mutant int) string {
		cmd := exec.Command("sh", "-c", `ulimit -t 1; exec "$0" "$1"`, binary, strconv.Itoa(function)) // some mutants loop for ever
		cmd.Env = append(os.Environ(), acts+"="+strconv.Itoa(mutant))
		out, err := cmd.Output()
		return fmt.Sprint(string(out), err)
	}
}
